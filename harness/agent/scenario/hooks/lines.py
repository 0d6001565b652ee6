"""Lines: in a program that imports no known framework, a step is a line of output that recurs with another number.

Lines recur if they are equal but for their numbers (`epoch 5: loss=0.61`). The first number after the time of day must
rise by the same amount up to the third line, which is the first step; later it may also begin anew, as that of a batch
does in each epoch.

A progress bar draws itself anew when time has passed, not at each step. Its counter counts: from `30/100` to `37/100`
are seven steps. A line that is drawn anew without such a counter is no step unless its number rises by one.
"""

import re

from . import printed

WHOLE = re.compile(r"\d+", re.ASCII)
OF = re.compile(r"(?<![\d.])(\d{1,15})/(\d{1,15})(?![\d/])", re.ASCII)
CLOCK = re.compile(
    r"(?<![\w.])(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d|\d)\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?(?![\w:])", re.ASCII
)  # with which many loggers begin a line
CLOCK_ENDS = 60  # characters of a line that are searched for it
WORD = re.compile(r"[^\W\d_]+")
BAR = re.compile("[\u2500-\u25ff=#>\\-]{3,}|%\\|.*?\\||%")
MOST_DIGITS = 15
MOST_SHAPES = 200  # that are remembered; a program may print anything
MOST_OF_A_BAR = 1000  # steps; of a longer bar, a step is several counts
LONGEST_SHAPE = 60  # characters that are told
RECURS = 3


class LineSteps(object):
    """Watches what Python writes to stdout and stderr. `mark(count)` is called after each line that ends `count` steps,
    unless `is_off`. `shape`: what the lines that are steps have in common, once they are chosen."""

    def __init__(self, mark):
        self.is_off = False
        self.shape = None
        self._mark = mark
        self._chosen = None
        self._unit = 1
        self._seen = {}  # shape -> (newest number, its last rise, how many lines have risen by it)

    def install(self):
        printed.call_with_lines(self._read)

    def _read(self, line, redrawn):
        count = 0 if self.is_off else self.steps_of(line, redrawn)
        if count:
            self._mark(count=count)

    def steps_of(self, line, redrawn=False):
        """Return how many steps a line ends. `redrawn`: it is drawn over another line, or will be drawn over."""
        line = printed.ESCAPES.sub("", line)
        clock = CLOCK.search(line, 0, CLOCK_ENDS)
        line = line[: clock.start()] + line[clock.end() :] if clock else line
        of = OF.search(line) if redrawn else None
        first = of or WHOLE.search(line)
        digits = first and first.group(1 if of else 0)
        if first is None or len(digits) > MOST_DIGITS:
            return 0
        begin, number = line[: first.start()], int(digits)
        # Of a bar, only what precedes the counter is the same in each line.
        shape = printed.NUMBER.sub("#", begin if of else line)
        shape = printed.single_spaced(BAR.sub("", shape)) + "/" if of else shape
        if self._chosen is not None:
            return self._of_chosen(number, bool(of)) if shape == self._chosen else 0
        return self._of_first(shape, begin, number, int(of.group(2)) if of else 0, redrawn)

    def _of_chosen(self, number, is_bar):
        before = self._seen[self._chosen][0]
        if not is_bar:
            self._seen[self._chosen] = (number, 0, 0)
            return int(number != before)
        number -= number % self._unit
        self._seen[self._chosen] = (number, 0, 0)
        return min((number - before if number >= before else number) // self._unit, MOST_OF_A_BAR)

    def _of_first(self, shape, begin, number, total, redrawn):
        """Return how many steps a line ends that may be the first; its shape is then chosen. `total`: that of a bar."""
        before, rise, count = self._seen.get(shape, (-1, None, 0))
        if total:
            rise = number - before
            count = count + (rise > 0) if rise >= 0 else 1
        elif count < 2 or number - before != rise:
            rise, count = number - before, 2 if count and number > before else 1
        else:
            count += 1
        if shape in self._seen or len(self._seen) < MOST_SHAPES:
            self._seen[shape] = number, rise, count
        if count < RECURS or (redrawn and not total and rise != 1):
            return 0
        self._unit = max(1, -(-total // MOST_OF_A_BAR))
        by = self._unit if total else rise
        words = " ".join(WORD.findall(begin)).lower()[:LONGEST_SHAPE]
        self.shape = "%s %s%s" % (words, "bar" if total else "#", " by %d" % by if by != 1 else "")
        self._chosen, self._seen = shape, {shape: (number - number % self._unit, rise, count)}
        return max(1, number // self._unit) if total else 1
