"""Lines: in a program that imports no known framework, a step is a line of output that recurs with another number.

Lines recur if they are equal but for their numbers (`epoch 5: loss=0.61`). The first number must grow from line to line
until the third one, which is the first step; later it may also begin anew, as that of a batch does in each epoch.
"""

import re

from . import printed

WHOLE = re.compile(r"\d+", re.ASCII)
MOST_DIGITS = 15
MOST_SHAPES = 200  # that are remembered; a program may print anything
RECURS = 3


class LineSteps(object):
    """Watches what Python writes to stdout and stderr. `mark()` is called after each line that is a step, unless
    `is_off`."""

    def __init__(self, mark):
        self.is_off = False
        self._mark = mark
        self._chosen = None
        self._seen = {}  # shape -> (newest number, how many lines it has grown for)

    def install(self):
        printed.call_with_lines(self._read)

    def _read(self, line):
        if not self.is_off and self.is_step(line):
            self._mark()

    def is_step(self, line):
        """Return whether a line ends a step."""
        first = WHOLE.search(line)
        if first is None or len(first.group()) > MOST_DIGITS:
            return False
        shape, number = printed.NUMBER.sub("#", line), int(first.group())
        if self._chosen is not None and shape != self._chosen:
            return False
        before, count = self._seen.get(shape, (-1, 0))
        if self._chosen is not None:
            self._seen[shape] = number, count
            return number != before
        if shape in self._seen or len(self._seen) < MOST_SHAPES:
            self._seen[shape] = number, count + 1 if number > before else 1
        if number > before and count + 1 >= RECURS:
            self._chosen, self._seen = shape, {shape: (number, count)}
            return True
        return False
