"""Lines: in a program that imports no known framework, a step is a line of output that recurs with another number.

Lines recur if they are equal but for their numbers (`epoch 5: loss=0.61`). One of the first numbers after the time of
day must rise by the same amount up to the third line, which is the first step: the first that does, because the number
of a process may precede it. Later it may also begin anew, as that of a batch does in each epoch.

A progress bar draws itself anew when time has passed, not at each step. Its counter counts: from `30/100` to `37/100`
are seven steps. A line that is drawn anew without such a counter is no step unless its number rises by one.

The rows of a table that is written at once are no steps: no time passes between them.
"""

import re
from itertools import islice

from . import printed

OF = re.compile(r"(?<![\d.])(\d{1,15})/(\d{1,15})(?![\d/])", re.ASCII)
CLOCK = re.compile(
    r"(?<![\w.])(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d|\d)\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?(?![\w:])", re.ASCII
)  # with which many loggers begin a line
CLOCK_ENDS = 60  # characters of a line that are searched for it
WORD = re.compile(r"[^\W\d_]+")
BAR = re.compile("[\u2500-\u25ff=#>\\-]{3,}|%\\|.*?\\||%")
MOST_DIGITS = 15
MOST_PLACES = 4  # numbers of a line among which the one that counts is found
MOST_SHAPES = 200  # that are remembered; a program may print anything
MOST_OF_A_BAR = 1000  # steps; of a longer bar, a step is several counts
LONGEST_SHAPE = 60  # characters that are told
RECURS = 3


class LineSteps(object):
    """Watches what Python writes to stdout and stderr. `mark(count)` is called after each line that ends `count` steps,
    unless `is_off`. `shape`: what the lines that are steps have in common, once they are chosen. `only`: the shape that
    they must have, as in the older versions; None: any; "": no line is a step."""

    def __init__(self, mark, only=None):
        self.is_off = only == ""
        self.shape = None
        self._mark, self._only = mark, only
        self._chosen = None
        self._place = 0  # of the number that counts
        self._unit = 1
        self._above = None  # the shape of the line above, if one call wrote both
        self._seen = {}  # shape -> for each place (newest number, its last rise, how many lines have risen by it)

    def install(self):
        printed.call_with_lines(self._read)

    def _read(self, line, redrawn, begins):
        count = 0 if self.is_off else self.steps_of(line, redrawn, begins)
        if count:
            self._mark(count=count)

    def steps_of(self, line, redrawn=False, begins=True):
        """Return how many steps a line ends. `redrawn`: it is drawn over another line, or will be drawn over; `begins`:
        it is the first that one call writes."""
        if printed.DIGIT.search(line) is None:
            return 0
        line = printed.without_escapes(line)
        if line.count(":", 0, CLOCK_ENDS) > 1:
            line = CLOCK.sub("", line[:CLOCK_ENDS], 1) + line[CLOCK_ENDS:]
        of = OF.search(line) if redrawn else None
        if printed.DIGIT.search(line) is None:
            return 0
        # Of a bar, only what precedes the counter is the same in each line.
        shape = printed.NUMBER.sub("#", line[: of.start()] if of else line)
        shape = "".join((BAR.sub("", shape) + "/" if of else shape).split())  # `[  5/200]` and `[ 15/200]` are alike
        above, self._above = None if begins or of else self._above, shape
        if shape == above or (self._chosen is not None and shape != self._chosen):
            return 0
        if self._chosen is not None:
            match = of or next(islice(printed.NUMBER.finditer(line), self._place, None), None)
            return self._of_chosen(match and _whole(match.group(1 if of else 0)), bool(of))
        found = [of] if of else list(islice(printed.NUMBER.finditer(line), MOST_PLACES))
        numbers = [_whole(match.group(1 if of else 0)) for match in found]
        total = int(of.group(2)) if of else 0
        for place in self._risen(shape, numbers, total):
            if not redrawn or total or self._seen[shape][place][1] == 1:
                count = self._choose(shape, place, line[: found[place].start()], total)
                if count:
                    return count
        return 0

    def _of_chosen(self, number, is_bar):
        before = self._seen[self._chosen][self._place][0]
        if number is None:
            return 0
        number -= number % self._unit
        self._seen[self._chosen][self._place] = (number, 0, 0)
        if not is_bar:
            return int(number != before)
        return min((number - before if number >= before else number) // self._unit, MOST_OF_A_BAR)

    def _risen(self, shape, numbers, total):
        """Note a line's numbers, and return the places of those that have risen often enough. `total`: of a bar."""
        if shape not in self._seen and len(self._seen) >= MOST_SHAPES:
            return []
        known = self._seen.setdefault(shape, [(None, None, 0)] * len(numbers))
        for place, number in enumerate(numbers[: len(known)]):  # `# 5` and `5 5` have one shape
            before, rise, count = known[place]
            risen = None if None in (before, number) else number - before
            if risen is None:
                known[place] = number, None, int(number is not None)
            elif total:
                known[place] = number, risen, count + (risen > 0) if risen >= 0 else 1
            elif count < 2 or risen != rise:
                known[place] = number, risen, 2 if risen > 0 else 1
            else:
                known[place] = number, rise, count + 1
        return [place for place, (_, _, count) in enumerate(known) if count >= RECURS]

    def _choose(self, shape, place, begin, total):
        """Choose the lines of this shape, and return how many steps the newest one ends; 0 if they cannot be steps."""
        number, rise, _ = self._seen[shape][place]
        unit = max(1, -(-total // MOST_OF_A_BAR))
        by = unit if total else rise
        words = " ".join(WORD.findall(begin)).lower()[:LONGEST_SHAPE]
        told = "%s %s%s" % (words, "bar" if total else "#", " by %d" % by if by != 1 else "")
        if self._only not in (None, told):
            return 0
        self.shape, self._unit = told, unit
        self._chosen, self._place, self._seen = shape, place, {shape: self._seen[shape]}
        self._seen[shape][place] = (number - number % self._unit, rise, 0)
        return max(1, number // self._unit) if total else 1


def _whole(text):
    """Return a whole number that is printed so: `5`, `1,234`; None for any other."""
    digits = text if text.isdigit() else text.lstrip("+-").rstrip(".").replace(",", "")
    return int(digits) if digits.isdigit() and len(digits) <= MOST_DIGITS else None
