"""Reads what a program prints: numbers, and in a program that imports no known framework, the lines that are steps.

Without patterns, it reads the numbers beside a name: `loss: 0.12 - accuracy: 0.9`, `step 51 loss nan`, `{"loss": 0.3}`,
a progress bar. It leaves out counters, times, sizes and what never changes. With patterns such as `loss: {}`, it reads
the number at the `{}` in each line that matches. The text around a number is compared literally, except that any white
space counts as one space. Patterns are not regular expressions, so that matching is always fast.
"""

import importlib
import os
import re
import sys
import threading
import time
import types
from functools import lru_cache
from itertools import islice

from .. import result_names

LONGEST = 1000  # characters of a line that are read
MOST_TIMES = 8  # that a name is printed after the last step; if it is more often, it is printed in a loop
THOUSANDS = r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d*)?"
# Without re.ASCII, a dotless i would pass for an i, and `float` raises ValueError on it.
NUMBER = re.compile(
    r"[-+]?(?:(?:%s|\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)" % THOUSANDS, re.IGNORECASE | re.ASCII
)
OF_BAR = r"%\||\d\d:\d\d(?:<|, )"  # `40%|`, `[00:01<00:02, ` or `[00:01, `; `12:30:01,123` is the time of a logger
LOOP = re.compile(r"(?<![^\W_])(?:epoch|step|iter(?:ation)?|batch|round)s?[\"']?\W{0,4}\d|\d ?(?:it/s|s/it)|" + OF_BAR)
"""What only the line of a loop or of a progress bar contains, in lower case."""
OWN_WORD = re.compile(r"(?<!\w)[^\W\d_]\w*")
ENDS = re.compile("(\r\n|[\r\n])")
DIGIT = re.compile("[0-9]")
NOT_FINITE = re.compile(r"(?<![^\W_])(?:nan|inf(?:inity)?)(?![^\W_])", re.IGNORECASE)


def single_spaced(text):
    """Return the text with any white space replaced by one space."""
    return " ".join(text.split())


@lru_cache(64)
def _loop_of(line):
    """Return the words before what tells that a line is of a loop, which may tell which loop: (`resnet18`,) of
    `resnet18: epoch 3`; None for any other line."""
    line = line.lower()
    match = LOOP.search(line)
    return match and tuple(OWN_WORD.findall(line, 0, match.start()))


def reader(patterns, log, but=None, measures=False):
    """Return what reads the lines: by `patterns` (name -> pattern), None: by the names beside the numbers, without the
    variable `but`: it is no result that it differs between versions. `measures`: also the last number of each time and
    rate. `log({name: number})` is called for each line with numbers."""
    return Named(log, but, measures) if patterns is None else Reader(patterns, log)


def call_with_lines(read, act):
    """Call `act` from now on with what `read(line, redrawn, begins)` finds, if anything, in each whole line that Python
    writes to stdout or stderr; `redrawn`: a carriage return precedes or ends it; `begins`: it is the first line of what
    is written at once."""
    _acts.append((read, act))
    for stream in (sys.stdout, sys.stderr):
        if not hasattr(stream.write, "is_read"):
            stream.write = _covered(stream.write)


class Spent(threading.local):
    """The seconds in which this thread has read lines: they are the agent's, and not the program's."""

    reading_s = 0.0


spent = Spent()
_acts = []  # of all streams
_writing = set()  # the threads that write: a stream may pass the same line on to another one


def _covered(write):
    rest = ["", ""]  # the beginning of a line, and the end of the line before it

    def covered(*args, **named):
        own = threading.get_ident()
        if own in _writing:
            return write(*args, **named)
        _writing.add(own)
        try:
            result = write(*args, **named)
        finally:
            _writing.discard(own)
        text = next(iter(args or named.values()), None)
        if not isinstance(text, str):
            return result
        if "\r" in text:
            parts = ENDS.split(rest[0] + text)
            parts, ends = parts[::2], parts[1::2]
        else:  # much cheaper
            parts = (rest[0] + text).split("\n")
            ends = ["\n"] * (len(parts) - 1)
        rest[0] = parts[-1][:LONGEST]
        for place, end in enumerate(ends):
            before, rest[1] = rest[1], end
            for read, act in _acts:
                began = time.perf_counter()
                found = read(parts[place][:LONGEST], "\r" in before or "\r" in end, not place)
                spent.reading_s += time.perf_counter() - began
                if found:
                    act(found)
        return result

    covered.is_read = True
    return covered


def follow_streams():
    """Read each stream that takes the place of stdout or stderr, too, and that writes to where they do, such as
    `io.TextIOWrapper(sys.stdout.buffer, "utf-8")`. Only the class of a module notices what is set in it."""
    sys.__class__ = _Following


class _OfModules(type):
    """The class of the class of `sys`. A program may take that for the class of all modules: nothing else is made of
    it."""

    def __new__(cls, name, bases, names, **named):
        own = tuple(types.ModuleType if isinstance(base, cls) else base for base in bases)
        return type.__new__(cls if own == bases else type, name, own, names, **named)

    def __call__(cls, *args, **named):
        return types.ModuleType(*args, **named)

    def __instancecheck__(cls, each):
        return isinstance(each, types.ModuleType)


class _Following(types.ModuleType, metaclass=_OfModules):
    def __setattr__(self, name, value):
        if name in ("stdout", "stderr"):
            _follow(value)
        types.ModuleType.__setattr__(self, name, value)

    def __reduce__(self):
        return importlib.import_module, ("sys",)  # cloudpickle knows modules by their class


def _follow(stream):
    try:
        leads_out = any(os.path.sameopenfile(stream.fileno(), fd) for fd in (1, 2))
        if leads_out and not hasattr(stream.write, "is_read"):
            object.__setattr__(stream, "write", _covered(stream.write))
    except Exception:  # any object may be a stream
        pass


class Reader(object):
    """Reads what is written to stdout and stderr, by patterns."""

    def __init__(self, patterns, log):
        parted = [(name, pattern.partition("{}")) for name, pattern in patterns.items()]
        self._patterns = [(name, single_spaced(before), single_spaced(after)) for name, (before, _, after) in parted]
        self._log = log
        self._newest = None, {}  # the step, and name -> (what was printed after it, in which line), in order
        self._line = ""  # the newest

    def install(self):
        """Read from now on whatever Python writes to stdout and stderr."""
        call_with_lines(lambda line, redrawn, begins: self.values(line), self._log)

    def begin(self):
        """Note that the first step was made."""

    def note(self, step, values):
        """Keep what was printed after this step: a program may print one name for each of its models, but the line of a
        loop takes the place of the same loop's before, and the line after a loop that of its last."""
        if self._newest[0] != step:
            self._newest = step, {}
        for name, value in values.items():
            printed = self._newest[1].setdefault(name, [])
            if printed:  # most lines of a program need not be searched
                own = _loop_of(self._line)
                loop = _loop_of(printed[-1][1]) if own is None else own
                printed[:] = [each for each in printed if loop is None or _loop_of(each[1]) != loop]
            if len(printed) <= MOST_TIMES:
                printed.append((value, self._line))

    def rest(self, measures=True):
        """Return name -> number for what counts only at the end: `accuracy (1)` precedes the last `accuracy`.
        `measures`: times and rates that are known by their names count, too."""
        few = {name: printed[:-1] for name, printed in self._newest[1].items() if len(printed) <= MOST_TIMES}
        numbers = {result_names.EARLIER % (name, at): each for name in few for at, (each, _) in enumerate(few[name], 1)}
        return {name: value for name, value in numbers.items() if abs(value) <= result_names.LARGEST}

    def values(self, line):
        """Return name -> number for the patterns that the line matches; the first match of each counts."""
        line = single_spaced(line[:LONGEST])
        numbers = {}
        for match in NUMBER.finditer(line):
            for name, before, after in self._patterns:
                if name not in numbers and _stands_between(line, match, before, after):
                    numbers[name] = float(match.group().replace(",", ""))
        self._line = line
        return numbers


def without_escapes(line, between=""):
    """Return a line without the codes that move the cursor and colour the text: `between` is in their place."""
    return ESCAPES.sub(between, line) if "\x1b" in line or "\b" in line else line


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


# ---------------------------------------------------------------- without patterns: names beside numbers

MOST_NAMES = 256  # that are told apart; later ones are left out
ESCAPES = re.compile("\x1b(?:\\[[0-9;?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[^[])|\b+")
PAIR = re.compile(
    r"""(?<![\w\-/@.]) ([^\W\d_][\w\-/@.]{0,39}(?:\ per\ sec(?:ond)?)?) ["']?
    (\ ?[=:\uff1a]\ ?|\ (?:\|\ )?) ["']? (?:(?:np\.)?(?:tensor|float\d\d)\()?
    ([-+]?(?:(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?
      |(?:[nN][aA][nN]|[iI][nN][fF](?:inity)?)(?![-/])))
    ([kKMG]|\ ?(?:[mun\u00b5\u03bc]?s|secs?|seconds?|min|minutes|h|hours?)(?![\w/]|\ ?(?:[=:]\ ?[-+.]?)?[0-9]))?
    (?!\w|\.\w|[,:\uff1a-][0-9]|%?\|)
    (?:\ ?/\ ?([1-9][0-9]{0,15})(?![\w/.:]))?
    (?!\ ?(?:[mun\u00b5\u03bc]?s|secs?|seconds?|min|minutes|h|hours?|[kKMGT]?i?[bB]|bytes|s/it|/)
      (?!\w|\ ?[=:]\ ?[-+.]?[0-9]))
    (%?) ((?:\ ?[\w.]{0,12}/|\ [\w.]{1,12}\ per\ )s(?:ec(?:ond)?)?(?!\w))?""",
    re.VERBOSE,
)  # the name, what is between, the number, its unit, of how many, the percent sign, the unit of a rate
FACTORS = {
    "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9,
    "ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "mi": 60.0, "h": 3600.0, "ho": 3600.0,
}  # fmt: skip
"""The factor of each unit, by the first two letters of it: a version may print `870 ms`, and the next `1.31 s`."""
RATE = re.compile(
    r"([0-9](?<![\w.,:/-].)(?:[0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?))"
    r"([kKMG](?= ))? ?"
    r"([^\W\d_]{1,12}(?:(?:/| per )[^\W\d_]{1,12})?)(?![\w/]| ?(?:[=:] ?)?[-+.]?[0-9])"
)  # the number, its thousands, its unit
OF_RATES = ("/s", "s/", " per ", "fps", "flops")  # one of these is in each unit of a rate, in lower case
SCALED = re.compile("([kKMGTP]?)(i?)(?:(B|bytes?)|(b|bits?)|FLOPS?|FLOPs|flops?)$")
COUNTED = re.compile(
    r" ?(?:%s)(?!\w|/| ?[=:|]| ?[-+.]?\d| [\"']?[^\W\d_][\w\-/@.]*[\"']? ?[=:])"
    % "|".join(sorted(result_names.COUNTERS | result_names.FAULTS)),
    re.IGNORECASE,
)  # what a number is of (`summary: 3 errors`), but not if it is, or begins, the name of the next number
NOT_OF_RATES = result_names.NEITHER | result_names.FAULTS
SECOND = frozenset(("s", "sec", "second"))
TIMES = frozenset(("s", "sec", "ms", "us", "\u00b5s", "\u03bcs", "ns"))
SPEEDS = frozenset(("m", "km", "cm", "mm", "rad", "deg"))  # a second: of what a program simulates
PER = result_names.COUNTERS | frozenset(("call", "img", "query", "req", "request"))
NO_RATES = re.compile(
    OF_BAR + r"|\[=|[\u2501\u2588]{3}|\b(?:eta|warn|fetch|receiv|resolv|clon|pull|push|(?:down|up)load)"
)
"""What is on the line of a bar or a transfer, whose rates are those of a moment or of the network."""
LEAST_DIGITS = 2  # of a rate that is told: one with fewer is too rough to compare, as `2ms/step` may be 2.4 or 1.6
OF = re.compile(
    r"(?:^|\W)(train(?:ing)?|test(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|"
    r"neg(?:ative)?(?:[ -]log)?|(?:-(?:2[ *]?)?)?log|-2) $",
    re.IGNORECASE,
)
AT_STEP = re.compile(
    r"(?<=\w) (?:after|at|for|in|of) (?:epoch|step|iter(?:ation)?|batch|round|fold) \d+(?:/\d+)? ?[:=] ?", re.IGNORECASE
)
"""What may come between a name and its number: `cost after epoch 3: 0.25`."""
WHOSE = re.compile(r"(?<![\w\-/@.])([^\W\d_][\w\-/@.]{0,39})(?:'s)? $")  # `valid_1's auc: 0.9`
QUOTES_SOURCE = re.compile(r':\d+: \w*Warning: |^ *File ".*", line \d')  # a line of source code follows
WARNS = re.compile(r"\wWarning: ")  # Python's own; `use precision='16'` is no result
OF_LOGGER = re.compile("(?:\x1b\\[[0-9;]*m)*wandb(?:\x1b\\[[0-9;]*m)*: ")  # repeats, rounded, what it was given
EXACT_INTEGER = re.compile("[-+]?[0-9,]+$")


def _is_of_other_words(line, match, is_first):
    """Return whether a number after a name is not the name's: `no NaN found`, `train.py:12`, `Benchmark: 80 iters`."""
    name, between, text = match.groups()[:3]
    if between == " ":
        return (is_first and text[-1].isalpha()) or _is_in_sentence(line, match)
    if COUNTED.match(line, match.end()) and not result_names.is_measure(name):
        return True
    return between == ":" and "." in name and EXACT_INTEGER.match(text) is not None


def _is_in_sentence(line, match):
    """Return whether a number after a name and a space is a part of a sentence: the name is the form of a verb, or a
    word such as `of` or a word without a number is beside them."""
    follows = line[match.end() :].lstrip(" ")
    pair = PAIR.match(follows)
    beside = line[: match.start()].lower().split()[-1:] + ([pair.group(1).lower()] if pair else [])
    is_alone = pair is None and follows[:1].isalpha()
    return is_alone or match.group(1).endswith(("ed", "ing")) or not result_names.LINKS.isdisjoint(beside)


class Named(Reader):
    """Reads the numbers beside names.

    A name that says that it is a result, such as `loss`, counts at once. Any other counts once its number has changed
    other than by a constant upwards, as a counter's does, or at the end if it never changed: `checksum 17`. It does not
    count in a warning, nor amid the words of a sentence: `loaded 0.5 of it`. Counters, times, sizes and settings never
    count (result_names.py), nor does source code that a warning or a traceback quotes. With `measures`, the last of the
    times and rates count at the end, also before `images/s`: a benchmark prints them as its answer. One without a name
    has that of its unit, and of several with one unit, also the words before it: `fp16_images/s`.
    """

    def __init__(self, log, but=None, measures=False):
        Reader.__init__(self, {}, log)
        self._but = but and _letters(but)
        self._measures = measures
        self._rates = {}  # unit -> {the words before it: the last number}, the newest last
        self._names = {}  # name -> True: it counts; False: it does not; else [last number, last rise]
        self._is_source = False  # the next line, if it is indented

    def values(self, line):
        """Return name -> number for the names that count. The first number of each does; of another one, the word
        before the name is a part of it."""
        line = line[:LONGEST]
        is_source, self._is_source = self._is_source and line.startswith("  "), False
        lowered = line.lower()
        if is_source or not (DIGIT.search(line) or "nan" in lowered or "inf" in lowered) or OF_LOGGER.match(line):
            return {}
        self._is_source = QUOTES_SOURCE.search(line) is not None
        if "deprecat" in lowered or ("warning: " in lowered and WARNS.search(line)):
            return {}
        self._line = single_spaced(without_escapes(line, " "))
        line, numbers, named = AT_STEP.sub(": ", self._line), {}, set()
        for match in PAIR.finditer(line):
            name, between, text, unit, total, percent, rate = match.groups()
            name = name.replace(" ", "_")
            if (rate and not result_names.worse_measure(name)) or (unit and not result_names.is_pace(name, unit)):
                continue
            if rate or unit:
                named.add(match.start(3))
            state = self._names.get(name)
            if state is None:
                state = self._learn(name)
            if state is False or (state is not True and (percent or total or "warn" in lowered or "|" in between)):
                continue
            number = float(text.replace(",", "")) * FACTORS.get(unit.strip()[:2] if unit else "", 1.0)
            if total:
                number /= float(total)
            most = sys.float_info.max if "e" in text.lower() else result_names.LARGEST  # as a loss that diverges
            if abs(number) > most and text[-1:].isdigit():
                continue
            is_amid = between == " " and line[match.end() :].strip(" .") != ""
            if state is not True and (
                _is_of_other_words(line, match, state[0] is None)
                or not self._counts(name, state, number, text, is_amid)
            ):
                continue
            of = (WHOSE if name in numbers else OF).search(line, max(0, match.start() - 44), match.start())
            numbers.setdefault(_joined(of.group(1), name) if of else name, number)
        if self._measures and any(part in lowered for part in OF_RATES):
            self._read_rates(line, named)
        return numbers

    def _read_rates(self, line, named):
        """Note the numbers before units of rates, but those that are `named`."""
        for match in RATE.finditer(line):
            text, thousands, unit = match.groups()
            factor, unit = _pace(unit.replace(" per ", "/"))
            number = float(text.replace(",", "")) * FACTORS.get(thousands, 1.0) * factor
            digits = re.sub("[eE].*|[.,]", "", text).lstrip("0")
            if not unit or match.start() in named or number > result_names.LARGEST:
                continue
            if NO_RATES.search(line.lower()):
                return
            of = re.split(r"[,;|()\[\]{}]", line[: match.start()])[-1].strip(" :=-~>*#")
            if not NOT_OF_RATES.isdisjoint(of.lower().split()):
                continue  # `limit: 100 req/s`, `dropped: 5.5 packets/s`
            of = "" if len(of) > 40 or re.search(r"(?<!\w)\d", of) else of.replace(" ", "_")
            known = self._rates.get(unit)
            if known is None:
                known = self._rates.setdefault(unit, {}) if len(self._rates) < MOST_NAMES else {}
            known.pop(of if of in known or len(known) < MOST_NAMES else next(iter(known)), None)
            if len(digits) >= LEAST_DIGITS:
                known[of] = number

    def begin(self):
        """Forget what was printed before the first step: settings, versions, sizes of the data."""
        self._names = {name: state for name, state in self._names.items() if isinstance(state, bool)}

    def rest(self, measures=True):
        known = {name: state for name, state in self._names.items() if not isinstance(state, bool)}
        never_changed = {
            name: last
            for name, (last, rise) in known.items()
            if last is not None and rise is None and (measures or result_names.worse_if(name))
        }
        results_first = sorted(never_changed, key=lambda name: not result_names.worse_if(name))  # there may be too many
        rates = {}
        for unit, known in self._rates.items() if measures else ():
            several = 1 < sum(map(bool, known)) <= MOST_TIMES  # more are those of a loop
            rates.update(("%s_%s" % (of, unit) if several and of else unit, known[of]) for of in known)
        named = {name: never_changed[name] for name in results_first}
        return dict(Reader.rest(self), **dict(named, **dict(rates, **named)))

    def _learn(self, name):
        is_setting = self._but == _letters(name)
        worse = "" if is_setting else result_names.worse_if(name)
        is_measure = self._measures and not is_setting and result_names.is_measure(name)
        state = [None, None] if worse == "change" or is_measure else bool(worse)
        if len(self._names) < MOST_NAMES:
            self._names[name] = state
        return state

    def _counts(self, name, state, number, text, is_amid):
        """Return whether a name counts from this number on. `is_amid`: the number is amid words, as in a sentence."""
        last, rise = state
        if is_amid and last is None and EXACT_INTEGER.match(text):
            self._names[name] = False  # `worker 3 died`
            return False
        if last is None or number == last or (self._measures and not result_names.worse_if(name)):
            state[0] = number
            return False
        state[:] = number, number - last
        counts = not state[1] > 0 or (rise is not None and abs(rise - state[1]) > 1e-9 * abs(number))
        if counts and name in self._names:
            self._names[name] = True
        return counts


def _joined(of, name):
    """Return a name with the word before it: `neg_log_likelihood` for `-2 log likelihood: 340`, too."""
    if of == "-2" and not name.lower().startswith("log"):
        return name
    return "%s_%s" % (re.sub("[ -]", "_", re.sub(r"^-(2[ *]?)?", "neg ", of).strip()), name)


def _pace(unit):
    """Return the factor and the usual form of a unit of a rate or of the time for one: (1.0, `images/s`) of
    `images/sec`, (1e6, `B/s`) of `MB/s`, (0.001, `s/step`) of `ms/step`; (1.0, "") for any other unit."""
    what, _, per = unit.partition("/")
    scaled = SCALED.match(what)
    if scaled and (per in SECOND or (what.endswith("FLOPS") and not per)):
        letter, binary, of_bytes, of_bits = scaled.groups()
        base = "B/s" if of_bytes else "bit/s" if of_bits else "FLOP/s"
        return (1024.0 if binary else 1000.0) ** " KMGTP".index(letter.upper() or " "), base
    if per in SECOND and what not in SPEEDS and what.lower() not in result_names.FAULTS:
        return 1.0, "%s/s" % what
    if per in PER and what in TIMES:
        return FACTORS.get(what, 1.0), "s/%s" % per
    return 1.0, "fps" if unit.lower() == "fps" else ""


def _letters(name):
    """Return a name as a program may print it in another form: `BATCH_SIZE` as `--batch-size` or `batchSize`."""
    return re.sub(r"[\W_]", "", name).lower()


# ---------------------------------------------------------------- lines that are steps
#
# Lines: in a program that imports no known framework, a step is a line of output that recurs with another number.
#
# Lines recur if they are equal but for their numbers (`epoch 5: loss=0.61`); a hexadecimal id counts as a number. One
# of the first numbers after the time of day must rise by the same amount up to the third line, which is the first step:
# the first that does, because the number of a process may precede it. Later it may also begin anew, as that of a batch
# does in each epoch.
#
# If no line recurs because its words vary as well (`shard 7: cats.txt done`), a number after the same word counts once
# it has risen by the same amount in more lines, between which time passed: a list of layers that is printed at once
# has no steps.
#
# A line with the next number that goes on after what the others print, or that has NaN or infinity, is a step as well.
#
# A progress bar draws itself anew when time has passed, not at each step. Its counter counts: from `30/100` to `37/100`
# are seven steps. A line that is drawn anew without such a counter is no step unless its number rises by one.
#
# The rows of a table that is written at once are no steps: no time passes between them.


COUNTER = re.compile(r"(?<![\d.])(\d{1,15})/(\d{1,15})(?![\d/])", re.ASCII)
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
ID = re.compile(r"(?<![0-9A-Za-z])(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{6,}(?![0-9A-Za-z])", re.ASCII)
RECURS_AFTER_A_WORD = 8
LEAST_APART_S = 0.001  # on average, of lines that vary
MOST_SKIPPED = 10  # rises of a number after a word at once


class LineSteps(object):
    """Watches what Python writes to stdout and stderr. `mark(count)` is called after each line that ends `count` steps,
    unless `is_off`. `shape`: what the lines that are steps have in common, once they are chosen. `only`: the shape that
    they must have, as in the older versions; None: any; "": no line is a step."""

    def __init__(self, mark, only=None, clock=time.perf_counter):
        self.is_off = only == ""
        self._clock = clock
        self.shape = None
        self._mark, self._only = mark, only
        self._chosen = None
        self._place = 0  # of the number that counts
        self._unit = 1
        self._rise = 0  # of the number from step to step, unless it is that of a bar
        self._above = None  # the shape of the line above, if one call wrote both
        self._seen = {}  # shape -> for each place (newest number, its last rise, how many lines have risen by it)
        self._after = {}  # word -> [newest number, its last rise, how many lines have risen by it, when the first did]
        self._word = None  # after which the number that counts comes, if other words vary

    def install(self):
        call_with_lines(lambda *line: not self.is_off and self.steps_of(*line), lambda count: self._mark(count=count))

    def steps_of(self, line, redrawn=False, begins=True):
        """Return how many steps a line ends. `redrawn`: it is drawn over another line, or will be drawn over; `begins`:
        it is the first that one call writes."""
        if DIGIT.search(line) is None:
            return 0
        line = without_escapes(line)
        if line.count(":", 0, CLOCK_ENDS) > 1:
            line = CLOCK.sub("", line[:CLOCK_ENDS], 1) + line[CLOCK_ENDS:]
        of = COUNTER.search(line) if redrawn else None
        if DIGIT.search(line) is None:
            return 0
        line = ID.sub("0", line)
        if self._word is not None:
            return self._of_word(line)
        # Of a bar, only what precedes the counter is the same in each line.
        shape = NUMBER.sub("#", line[: of.start()] if of else line)
        shape = "".join((BAR.sub("", shape) + "/" if of else shape).split())  # `[  5/200]` and `[ 15/200]` are alike
        above, self._above = None if begins or of else self._above, shape
        if shape == above:
            return 0
        if self._chosen is not None:
            match = of or next(islice(NUMBER.finditer(line), self._place, None), None)
            number = match and _whole(match.group(1 if of else 0))
            is_next = self._rise > 0 and number == self._seen[self._chosen][self._place][0] + self._rise
            is_step = shape == self._chosen or (is_next and self._is_like(shape, line, match))
            return self._of_chosen(number, bool(of)) if is_step else 0
        found = [of] if of else list(islice(NUMBER.finditer(line), MOST_PLACES))
        numbers = [_whole(match.group(1 if of else 0)) for match in found]
        total = int(of.group(2)) if of else 0
        counts = (
            self._choose(shape, place, line[: found[place].start()], total)
            for place in self._risen(shape, numbers, total)
            if not redrawn or total or self._seen[shape][place][1] == 1
        )
        return next(filter(None, counts), 0) or (0 if of else self._choose_word(line))

    def _choose_word(self, line):
        """Note the numbers of a line that recurs in no other form. Return 1 if one of them counts from now on."""
        for word, number in _after_words(line):
            known = self._after.get(word)
            if known is None:
                if len(self._after) < MOST_SHAPES:
                    self._after[word] = [number, 0, 1, self._clock()]
            elif number - known[0] == known[1] > 0:
                known[:3] = number, known[1], known[2] + 1
                apart_s = (self._clock() - known[3]) / known[2]
                told = "%s #%s" % (word, " by %d" % known[1] if known[1] != 1 else "")
                if known[2] >= RECURS_AFTER_A_WORD and apart_s >= LEAST_APART_S and self._only in (None, told):
                    self.shape, self._word = told, word
                    return 1
            elif number != known[0]:
                known[:] = number, number - known[0], 2 if number > known[0] else 1, self._clock()
        return 0

    def _of_word(self, line):
        """Return 1 if the number after the chosen word has risen as before, or begins anew."""
        known = self._after[self._word]
        number = next((number for word, number in _after_words(line) if word == self._word), known[0])
        rises, rest = divmod(number - known[0], known[1])
        if not rest and (0 < rises <= MOST_SKIPPED or number in (0, known[1])) and rises:
            known[0] = number
            return 1
        return 0

    def _is_like(self, shape, line, match):
        """Return whether a line with the next number is a step in another shape: it goes on after the shape of the
        others, or has NaN or infinity: `step 3 loss=2.1 grad_norm=inf, skipped`."""
        begin = "".join(NUMBER.sub("#", line[: match.start()]).split())
        is_begun = bool(begin) and self._chosen.startswith(begin + "#")
        return is_begun and (shape.startswith(self._chosen) or NOT_FINITE.search(line) is not None)

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
        self.shape, self._unit, self._rise = told, unit, 0 if total else rise
        self._chosen, self._place, self._seen = shape, place, {shape: self._seen[shape]}
        self._seen[shape][place] = (number - number % self._unit, rise, 0)
        return max(1, number // self._unit) if total else 1


def _after_words(line):
    """Yield (the word before it, number) for the first whole numbers of a line, each word once; the word may be ""."""
    words, end = set(), 0
    for match in islice(NUMBER.finditer(line), MOST_PLACES):
        before = WORD.findall(line, end, match.start())
        word, end, number = before[-1].lower()[:LONGEST_SHAPE] if before else "", match.end(), _whole(match.group())
        if number is not None and word not in words:
            words.add(word)
            yield word, number


def _whole(text):
    """Return a whole number that is printed so: `5`, `1,234`; None for any other."""
    digits = text if text.isdigit() else text.lstrip("+-").rstrip(".").replace(",", "")
    return int(digits) if digits.isdigit() and len(digits) <= MOST_DIGITS else None
