"""Reads the numbers that a program prints: in a line that matches a pattern such as `loss: {}`, the number at the `{}`.

The text around a number is compared literally, except that any white space counts as one space. Patterns are not
regular expressions, so that matching is always fast.
"""

import re
import sys

LONGEST = 1000  # characters of a line that are read
THOUSANDS = r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d*)?"
# Without re.ASCII, a dotless i would pass for an i, and `float` raises ValueError on it.
NUMBER = re.compile(
    r"[-+]?(?:(?:%s|\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)" % THOUSANDS, re.IGNORECASE | re.ASCII
)
ENDS = re.compile("[\r\n]")


def single_spaced(text):
    """Return the text with any white space replaced by one space."""
    return " ".join(text.split())


class Reader(object):
    """Reads what is written to stdout and stderr. `patterns`: name -> pattern. `log({name: number})` is called for each
    line that matches one."""

    def __init__(self, patterns, log):
        parted = [(name, pattern.partition("{}")) for name, pattern in patterns.items()]
        self._patterns = [(name, single_spaced(before), single_spaced(after)) for name, (before, _, after) in parted]
        self._log = log

    def install(self):
        """Read from now on whatever Python writes to stdout and stderr."""
        for stream in (sys.stdout, sys.stderr):
            stream.write = self.covered(stream.write)

    def covered(self, write):
        """Return a `write` that also reads each whole line."""
        rest = [""]

        def covered(text):
            result = write(text)
            whole = ENDS.split(rest[0] + text)
            rest[0] = whole.pop()[:LONGEST]
            for line in whole:
                values = self.values(line)
                if values:
                    self._log(values)
            return result

        return covered

    def values(self, line):
        """Return name -> number for the patterns that the line matches; the first match of each counts."""
        line = single_spaced(line[:LONGEST])
        numbers = {}
        for match in NUMBER.finditer(line):
            for name, before, after in self._patterns:
                if name not in numbers and _stands_between(line, match, before, after):
                    numbers[name] = float(match.group().replace(",", ""))
        return numbers


def _stands_between(line, match, before, after):
    start, end = match.span()
    if match.group()[-1].isalpha() and _is_part_of_word(line, start, end, before, after):
        return False
    start -= line[start - 1 : start] == " "
    end += line[end : end + 1] == " "
    return line.endswith(before, 0, start) and line.startswith(after, end)


def _is_part_of_word(line, start, end, before, after):
    """Return whether `nan` or `inf` is only a part of a word, as in `information`, and the pattern does not contain the
    rest of the word."""
    return (not before and line[start - 1 : start].isalpha()) or (not after and line[end : end + 1].isalpha())
