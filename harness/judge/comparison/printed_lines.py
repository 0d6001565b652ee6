"""Finds what the versions of a row make and print differently: fewer steps, new lines, and lines of a form that all
have, with other numbers or texts in all launches of a version.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

import numpy as np

from harness.agent.ending import ORDERS
from harness.agent.result_names import RESOURCES, WORD
from harness.amounts import plural
from harness.judge.comparison.which_launches import has_step_times
from harness.masking import scrubbed, told_words
from harness.model import Observed, Trial, worse_if

FEWER = 0.1
"""Least share by which all launches of a version make fewer steps than those of the version before."""


def fewer_steps(launches: Sequence[Sequence[Trial]]) -> list[Observed]:
    """Return, for each version whose programs end by themselves after fewer steps than before, the numbers of steps: an
    early end may be the fault that nobody reports. A launch that the agent ended would have made more."""
    before: tuple[int, int] | None = None
    found: list[Observed] = []
    least = 0.0
    for place, version in enumerate(launches):
        made = [trial for trial in version if trial.ended_well and has_step_times(trial)]
        own = [trial.last_step for trial in made if trial.run_s is not None]
        whole = [*own, *(trial.last_step for trial in made if trial.run_s is None and trial.end == "completed")]
        if before is not None and len(own) > 1 and own == whole and max(own) < (1 - FEWER) * before[1]:
            text = f"it ends after {max(own)} {plural('step', max(own))}; the version before makes {before[1]}"
            found.append(Observed(signal="fewer_steps", before=before[0], after=place, last=place, text=text))
            least = (1 - FEWER) * before[1]
        elif len(own) > 1 and own == whole and max(own) < least:
            found[-1] = replace(found[-1], last=place)
        elif len(whole) > 1:
            least = 0.0
        if len(whole) > 1:
            before = place, min(whole)
    return found


MOST_TOLD = 5
"""Most new lines of one version that are reported."""
LONGEST = 300
"""Most characters of a line that are compared."""
NONE = r"(?i:none|null|false)\b"
NOTABLE_LINES = {
    "error": re.compile(
        r"Traceback \(most recent|\bXid\b|NCCL WARN|Segmentation fault|core dumped|\b[Kk]illed\b(?!:? ?#)"
        r"|\b(?!\w*(?:Squared|Absolute))[A-Z]\w*(?:Error|Exception)\b(?=:(?! ?#)|$)|\bException (?:in|ignored)\b"
        rf"|(?:^|: |\b(?:CUDA|[Ff]atal|[Ii]nternal|[Rr]untime) )error: (?!{NONE})(?=[^\W\d_])|\bpanicked at\b"
        rf"|\b(?:Error|ERROR|FATAL)\b(?!: {NONE})(?=\]?:? ?[^\s:#])"
        r"|\b(?:overflow|invalid value|divide by zero) encountered\b"
        r"|[:=\[(,]\s*-?(?:nan|NaN)(?![\w./-])|(?<=[A-Za-z_])\s+-?nan(?![\w./-])"
        r"|(?i:out of memory|\bf[ae]ll(?:s|ing)? back\b|\bfailed to\b(?! improve))"
    ),
    "deprecated": re.compile(r"(?i:deprecat.{0,200}\bremoved\b)"),
}
"""What a masked line must contain to be of that signal, and not of `log`. A number after `Error:` is a metric."""
TIMED = re.compile(r"\d%\||\dit/s|s/it\b")
"""What a progress bar contains that is drawn anew as time passes."""
PROGRESS = re.compile(TIMED.pattern + r"|[\u2501\u2588]{3}")
"""What only a progress bar contains."""
BLOCKS = re.compile(r"[\u2500-\u259f]+|={2,}")
IDENTIFIER = r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b[0-9a-fA-F]{12,}\b"
MASKED = re.compile(rf"{IDENTIFIER}|/tmp/\S+|\d+(?:[.:,]\d+)*")
PRIVATE = re.compile(rf"{IDENTIFIER}|\b\d+(?:\.\d+){{3}}\b")
"""What stays masked in a line that is told: it may be a key, or an address of the machine."""


def new_lines(launches: Sequence[Sequence[Trial]]) -> tuple[Observed, ...]:
    """Return, for each version, the lines that most of its launches print and that no earlier version printed: each as
    the first launch prints it."""
    known: set[str] = set()
    before: int | None = None
    observed: list[Observed] = []
    printing = dict[int, set[str]]()
    for place, version in enumerate(launches):
        printed = [log_lines_of(trial) for trial in version if trial.measured]
        if not printed:
            continue
        usual = [
            line
            for line, count in Counter(line for lines in printed for line in lines).items()
            if 2 * count > len(printed)
        ]
        printing[place] = set(usual)
        new = [line for line in usual if line not in known]
        if before is not None:
            observed += _observed(before, place, new)
        known.update(*printed)
        before = place

    def whole(each: Observed) -> Observed:
        if each.text not in printing[each.after]:
            return each
        later = [place for place in printing if place >= each.after]
        last = list(takewhile(lambda place: each.text in printing[place], later))[-1]
        return replace(each, text=as_printed(each.text, launches[each.after], mask), last=last)

    return tuple(map(whole, observed))


def as_printed(masked: str, trials: Iterable[Trial], by: Callable[[str], str]) -> str:
    """Return the first line that is masked so `by` a function, with its decimal numbers, and without credentials and
    the folder of the trial; else the masked line."""
    longest = max(masked.split("#"), key=len).strip()
    texts = (text for trial in trials for text in _kept(trial))
    near = (each for text in texts if longest in text for each in text.split("\n") if longest in each)
    for line in (line[:LONGEST].strip() for each in near for line in _shown([each])):
        if by(line.translate(ZEROED)) == masked:
            return scrubbed(*told_words([PRIVATE.sub("#", line)]))
    return masked


def _observed(before: int, after: int, lines: Sequence[str]) -> Iterator[Observed]:
    """Yield the notable lines first. The first line of a traceback comes after its last, which says more."""
    kinds = {line: next((name for name, like in NOTABLE_LINES.items() if like.search(line)), "log") for line in lines}
    lines = sorted(lines, key=lambda line: (kinds[line] == "log", line.startswith("Traceback ")))
    for line in lines[:MOST_TOLD]:
        yield Observed(signal=kinds[line], before=before, after=after, text=line)
    if len(lines) > MOST_TOLD:
        text = f"and {len(lines) - MOST_TOLD} more new lines"
        yield Observed(signal="log", before=before, after=after, text=text)


def log_lines_of(trial: Trial) -> dict[str, None]:
    """Return the distinct lines that a launch printed, masked, in the order in which they appear, as far as its output
    is kept (`Printed`)."""
    lines = (line for text in _kept(trial) for line in lines_of(text))
    return dict.fromkeys(masked for line in lines if (masked := mask(line[:LONGEST])))


def prints_number(name: str, trials: Iterable[Trial]) -> bool:
    """Return whether launches print a number beside the words of this name in any form. It is no metric in some, such
    as amid a sentence."""
    words = r"(?:'s)?[\W_]{1,4}".join(map(re.escape, WORD.findall(name) or [name]))
    beside = re.compile(rf"(?i)(?<![\w/.-]){words}\W{{1,4}}\.?\d")
    return any(beside.search(text) for trial in trials for text in _kept(trial))


def _kept(trial: Trial) -> tuple[str, str, str]:
    return trial.output.head, trial.output.middle, trial.output.tail


ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
ZEROED = str.maketrans("123456789", "0" * 9)
"""Makes lines equal that differ only in decimal numbers, before anything else looks at them: a launch may print
thousands."""
WARNING = re.compile(r":\d+: \w*Warning: ")


def lines_of(text: str) -> list[str]:
    """Return the distinct lines, with 0 for each digit, as a terminal shows them, without the line of code that Python
    prints below a warning, because it says the same again."""
    both = pairwise(["", *re.split(r"\r?\n", text.encode("utf-8", "replace").translate(ZEROS).decode())])
    return _shown(dict.fromkeys(line for above, line in both if not (line.startswith("  ") and WARNING.search(above))))


def _shown(printed: Iterable[str]) -> list[str]:
    """Return lines as a terminal shows them, without colours and progress bars: text before a carriage return is drawn
    over, and an error may follow a bar on its line."""
    lines = (ORDERS.sub("", line).rstrip("\r").rpartition("\r")[2] for line in printed)
    shown = (line.rpartition("]")[2].lstrip() if PROGRESS.search(line) else line for line in lines)
    return [line for whole in shown if not PROGRESS.search(whole) for line in whole.splitlines()]


@functools.lru_cache(maxsize=20_000)
def mask(line: str) -> str:
    """Mask a line: `E0731 12:01:02 load of libcudnn.so.8 failed` -> `E# # load of libcudnn.so.# failed`."""
    return MASKED.sub("#", line).strip()


# ---------------------------------------------------------------- the names of the versions

NUMBER = re.compile(r"\d+(?:\.\d+)*")


def _names_of(versions: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of the names and tags of versions that are no numbers: a program may print which one it is
    (`running app:1`)."""
    ways = {way for name in versions for way in (name, name.rpartition("/")[2], name.rpartition(":")[2])}
    names = sorted((way for way in ways if re.search(r"[^\W\d]|\..*\.", way)), key=len, reverse=True)
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, names)) or '(?!)'})(?!\w|\.\w)")


def _is_own(text: str, version: str) -> bool:
    """Return whether a number begins one in the name of a version, up to a dot: 1.26 of 1.26.4, 1 of app:1."""
    numbers = NUMBER.findall(version)
    return any(number.startswith(text) if "." in text else number.split(".")[0] == text for number in numbers)


def is_of_version(name: str, launches: Sequence[Sequence[Trial]], versions: Sequence[str]) -> bool:
    """Return whether a number whose name tells of no result is in each version one of that version's own name."""
    if worse_if(name) != "change":
        return False
    both = [(trial.figures(name), version) for own, version in zip(launches, versions, strict=True) for trial in own]
    told = [(value, version) for rows, version in both if rows is not None for value in np.unique(rows).tolist()]
    known = {(f"{value:.15g}", version) for value, version in told if math.isfinite(value)}
    return len({text for text, _ in known}) > 1 and all(_is_own(*each) for each in known)


# ---------------------------------------------------------------- lines with other numbers or texts
#
# A program that prints the same in each launch of a version, and something else in each launch of the next one, has
# another result, whether or not a name says so: the top ten in another order, a digest, a label. Lines have one form if
# they are equal but for their values, or begin with the same label (`winner: bob`) or the number of the same things
# (`3 passed`). Of one form, the values that differ between launches of any version come by chance.

VALUE = re.compile(
    r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)|(?<!\w)(?i:[cgtx]pu|cuda|mps|rocm)s?(?!\w)|\w*\d\w*(?:\.\d+)*"
)
"""A number, a device, or a word with a digit: `fp16`, a digest."""
ELSEWHERE = re.compile(
    r".*[^\d/.,].*/.*|.*/.*[^\d/.,].*|.*\.\w+:\d+.*|0x[0-9a-fA-F]+\W*|\D*\d+([.:-]\d+){2,}.*|\d+:\d\d"
)
"""A path, a line of source code, an address, a version, a date or a time of day: none of these words is a result."""
FIGURE = re.compile(r"(?<![\w.])-?\d[\w.,+-]*")
AMOUNT = re.compile(
    r"(?:(?<![\w.])\d[\d.,]*\s?(?:[mun\u00b5]?s|secs?|seconds?|min|minutes?|h|hours?|[kKMGT]?i?B|bytes|[\w.]{1,12}/s(?:ec)?)\b\s*)+"
)
"""A time, a size or a rate, in one unit or several: `1 min 3 s`."""
AMOUNTS = RESOURCES - {"cpu", "cpus", "gpu", "gpus"}
"""Beside these words, numbers are amounts, or versions of the machine, and no results; how many processors is one."""
WHICH = frozenset(("address", "build", "commit", "copyright", "date", "pid", "port", "python", "rev", "revision")) | {
    "session", "sha", "timestamp", "version", "versions", "year"
}  # fmt: skip
"""Lines with these words tell which version ran, when and where."""
LABEL = re.compile(r"(?:([A-Za-z_][\w ]{0,39})[:=] ?(?=\S)|\d+ [A-Za-z]+\b)")
LEVELS_OF_LOGS = frozenset({"debug", "info", "notice", "warning", "warn", "critical"})
ROUNDING = 1e-6
"""Largest relative difference of two decimal numbers that may be rounding."""
MOST_COMPARED = 100
"""Lines of a launch that are compared. Rows are judged after each round, and results stand first or last."""
SHOWN = 70
"""Characters of each of two lines that are told."""
LUCK = 0.05
"""Largest probability that a result which varies seems to differ between versions."""
Line = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A line, which is shown; its values, which are compared: the time that a logger prints before it is none; and those of
its numbers that are judged by their names."""


def other_lines(launches: Sequence[Sequence[Trial]], versions: Sequence[str]) -> Iterator[Observed]:
    """Yield, for each version, a line that all its whole launches print differently than all those of the version
    before. Values that differ between launches of any version are left out, with the form if they are its first: they
    come by chance; so are forms of which numbers differ that are judged by their names. The order of lines is ignored
    if it differs between launches, as that of threads does."""
    names = _names_of(versions)
    printed = [[_by_form(trial, names) for trial in own if trial.ran_to_its_end] for own in launches]
    for form in _varying(printed):
        for each in (each for own in printed for each in own if form in each):
            each[form].sort(key=lambda line: line[1])
    for form, chance in _varying(printed).items():
        for each in (each for own in printed for each in own if form in each):
            lines = each.pop(form)
            if 0 not in chance:
                each[form] = [
                    (line, tuple(value for at, value in enumerate(values) if at not in chance), named)
                    for line, values, named in lines
                ]
    places = [place for place, own in enumerate(printed) if len(own) > 1]

    def compared(before: int, after: int) -> dict[str, str]:
        """Return what is told of each form that both versions have, by form; "" if its lines are the same."""
        old, new, both = printed[before][0], printed[after][0], (versions[before], versions[after])
        alike = [form for form in old if _is_alike(form, old[form], new.get(form, ()))]
        pairs = {form: list(zip(old[form], new[form], strict=True)) for form in alike}
        return {
            form: _told([pair for pair in each if _differ(pair[0][1], pair[1][1], both)])
            if all(a[2] == b[2] for a, b in each)
            else ""
            for form, each in pairs.items()
        }

    for at, (before, after) in enumerate(pairwise(places), 1):
        told = {form: text for form, text in compared(before, after).items() if text and not _is_luck(form, printed)}
        if told:
            same = ({form for form, text in compared(after, place).items() if not text} for place in places[at:])
            last = places[at - 1 + len([*takewhile(bool, (told.keys() & forms for forms in same))])]
            text = next(iter(told.values()))
            yield Observed(signal="other_lines", before=before, after=after, last=last, text=text)


def _varying(printed: Sequence[Sequence[Mapping[str, list[Line]]]]) -> dict[str, set[int]]:
    """Return the places of the values that differ between launches of a version, by form; 0 if it has other lines."""
    found: dict[str, set[int]] = {}
    for own in printed:
        for each in own[1:]:
            for form, lines in own[0].items():
                both = _values(lines), _values(each.get(form, ()))
                if [*map(len, both[0])] != [*map(len, both[1])]:
                    found.setdefault(form, set()).add(0)
                for old, new in zip(*both, strict=False):
                    if old != new:
                        places = (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
                        found.setdefault(form, set()).update(places)
    return found


def _values(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    return [values for _, values, _ in lines]


def _is_luck(form: str, printed: Sequence[Sequence[Mapping[str, list[Line]]]]) -> bool:
    """Return whether the lines of this form may differ between versions by luck."""
    return is_luck([len(own) for own in printed if len(own) > 1 and form in own[0]])


def is_luck(launches: Sequence[int]) -> bool:
    """Return whether a result with two values, of which each launch takes either, may well have come out the same in
    all launches of each version, but not in all versions. `launches`: how many each version has."""
    return 2.0 ** (len(launches) - sum(launches)) * (1 - 2.0 ** (1 - len(launches))) > LUCK


def _told(pairs: Sequence[tuple[Line, Line]]) -> str:
    """Return two lines, each cut around the place from which on they differ: of the last pair if all begin with equal
    values, as the lines of steps do, or are many, which may be the ends of longer outputs, else of the first; ""
    without a pair."""
    if not pairs:
        return ""
    are_steps = len(pairs) > MOST_COMPARED // 4 or all(a[1][:1] == b[1][:1] for a, b in pairs)
    old, new = (line[0] for line in pairs[-1 if are_steps else 0])
    words = ([word for word in re.finditer(r"\S+", line) if not ELSEWHERE.fullmatch(word[0])] for line in (old, new))
    places = next(((a, b) for a, b in zip(*words, strict=False) if a[0] != b[0]), None)
    if places is None:
        return f"{_cut(old, len(old))} → {_cut(new, len(new))}"
    texts = [word[0] for word in places]
    same = next((n for n, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    return " → ".join(_cut(line, word.start() + same) for line, word in zip((old, new), places, strict=True))


def _cut(line: str, place: int) -> str:
    """Return at most SHOWN characters of a line, around a place in it, with `…` for what is missing."""
    first = max(0, min(place - SHOWN // 2, len(line) - SHOWN))
    return f"{'…' if first else ''}{line[first : first + SHOWN]}{'…' if first + SHOWN < len(line) else ''}"


def _by_form(trial: Trial, names: re.Pattern[str]) -> dict[str, list[Line]]:
    """Return the lines, by form, without those that tell of resources. The `names` of versions count as equal."""
    metrics = {} if trial.trace is None else trial.trace.metrics
    judged, own_words = {word for name in metrics for word in WORD.findall(name.lower())}, _words(" ".join(metrics))
    first = re.compile(rf"(?i)(?<![^\W_])(?:{'|'.join(map(re.escape, judged))})(?![^\W_]).*?(?<![\w.])(-?\d[\d.,e+-]*)")
    found: dict[str, list[Line]] = {}
    for line in _printed_lines(trial):
        own = names.sub("_", line.strip()[:LONGEST])
        words, form, values = _parsed(own)
        is_judged = bool(words & own_words)
        named = tuple(first.findall(own)) if is_judged else ()
        if words and (named or not is_judged):
            found.setdefault(form, []).append((line.strip(), values, named))
    return found


def _printed_lines(trial: Trial) -> list[str]:
    """Return the first and the last lines that the program printed. The end of a short output has its beginning, too,
    after what the entrypoint of the image printed."""
    head, tail = trial.output.head, trial.output.tail
    begins = tail.find(head)
    whole = tail[begins:].splitlines() if begins >= 0 else []
    if whole and len(whole) <= MOST_COMPARED:
        return whole
    return [*head.splitlines()[: MOST_COMPARED // 2], *tail.splitlines()[-(MOST_COMPARED // 2) :]]


@functools.lru_cache(maxsize=20_000)
def _parsed(line: str) -> tuple[frozenset[str], str, tuple[str, ...]]:
    """Return the words of a line, its form and its values; no words if the line is none that is compared."""
    unlike = (TIMED, WARNING, *NOTABLE_LINES.values())
    masked = AMOUNT.sub("# ", BLOCKS.sub("", line))
    told = " ".join(word for word in masked.split() if not ELSEWHERE.fullmatch(word))
    words = _words(told)
    if words & AMOUNTS:
        told = FIGURE.sub("#", told)
    values, label = tuple(VALUE.findall(told)), LABEL.match(told)
    if words & WHICH or any(like.search(line) for like in unlike):
        return frozenset(), "", ()
    if label is not None and (label[1] or "").lower() not in LEVELS_OF_LOGS:
        return _words(line), VALUE.sub("#", label[0]).strip(), (VALUE.sub("#", told[label.end() :]), *values)
    if not values:
        return _words("" if "#" in told else told), "", (told,)
    return _words(line), VALUE.sub("#", told), values


def _words(line: str) -> frozenset[str]:
    return frozenset(word.rstrip("0123456789") or word for word in WORD.findall(line.lower()))


def _is_alike(form: str, old: Sequence[Line], new: Sequence[Line]) -> bool:
    """Return whether as many lines have the form; of plain lines, whether they are the same in any order."""
    return len(old) == len(new) if form else sorted(_values(old)) == sorted(_values(new))


def _differ(old: tuple[str, ...], new: tuple[str, ...], versions: tuple[str, str]) -> bool:
    """Return whether values differ by more than rounding and the numbers of the versions."""
    return len(old) != len(new) or any(
        a != b and len({*map(_without_own, (a, b), versions)}) > 1 and not _is_rounding(a, b)
        for a, b in zip(old, new, strict=True)
    )


def _without_own(text: str, version: str) -> str:
    return NUMBER.sub(lambda number: "" if _is_own(number[0], version) else number[0], text)


def _is_rounding(old: str, new: str) -> bool:
    """Return whether two decimal numbers differ by rounding only, at most by one of the last digit that both have."""
    decimals = [len(text.partition(".")[2]) for text in (old, new) if "." in text]
    try:
        a, b = float(old), float(new)
    except ValueError:
        return False
    last = 1.01 * 10.0 ** -min(decimals) if len(decimals) == 2 and "e" not in (old + new).lower() else 0.0
    return bool(decimals) and abs(a - b) <= max(ROUNDING * max(abs(a), abs(b)), last)
