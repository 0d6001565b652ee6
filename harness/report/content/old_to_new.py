"""Compares the oldest and the newest version of a row (old → new), with the minimum detectable effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.model import CellResult, CellVerdict, Interval, SignalState
from harness.report.content.version_table import Row
from harness.report.text import numbers, signal_marks, signal_words, words
from harness.report.text.harmless_text import version
from harness.report.text.signal_marks import Tone

_ALWAYS = ("step_time", "peak_memory", "memory")
_NONE = "none"
_NOT_COMPARED = "not compared"
_TOO_FEW = "too few launches to distinguish it from noise"
_ORDER: tuple[SignalState, ...] = ("bad", "suspect", "blind", "good", "none")


@dataclass(frozen=True, kw_only=True)
class Both:
    """One signal of a row, in cleaned texts; a text that does not apply is "".

    `old` and `new` are the figures of the oldest and the newest version that have one; `between` names these versions,
    `undecided` marks growth that may be zero, and `change` is the change from `old` to `new`. `worst` is the worst bad
    figure between them (`2.10 s in 6.3.0`). `visible` is the minimum detectable effect; `shows_any`: any change would
    have shown; `is_coarse`: it exceeds the limit. `seen` is the worst state of all versions, and `why` the reason
    for it. `lacks`: in how many versions the signal was not measured, and why.
    """

    name: str
    title: str
    old: str
    new: str
    between: tuple[str, ...]
    undecided: tuple[bool, ...]
    change: str
    worst: str
    limit: str
    visible: str
    shows_any: bool
    is_coarse: bool
    seen: SignalState | None
    why: str
    lacks: str

    @property
    def tone(self) -> Tone:
        return "none" if self.seen is None else signal_marks.TONES[self.seen]

    @property
    def figures(self) -> str:
        """Return `0.623 → 0.647 ms`, or for levels that were not compared `15.1 ms in 3.6, 7.63 ms in 3.7`, because
        the difference between such levels means nothing. A unit that both figures share is written once.
        """
        if self.is_apart:
            pairs = zip((self.old, self.new), self.between, strict=True)
            return ", ".join(f"{figure} in {name}" for figure, name in pairs)
        if not self.new or self.old == self.new == _NONE:
            told = self.old
        else:
            told = f"{numbers.without_unit(self.old, self.new)} → {self.new}"
        return ", but ".join(filter(None, (told, self.worst)))

    @property
    def is_apart(self) -> bool:
        """Return whether the signal has two levels that were not compared with each other."""
        if self.change or self.visible:
            return False
        return bool(self.new) and signal_words.shown_signal(self.name).kind == "level"

    @property
    def is_open(self) -> bool:
        return self.seen in ("bad", "suspect", "blind")

    @property
    def is_told(self) -> bool:
        """Return whether the line of a row must include this signal, although it is not one that every line has."""
        return self.is_coarse or self.seen in ("bad", "suspect")

    @property
    def resolution(self) -> str:
        """Return `a change of 8 % would have shown` or `only a change of 35 % would have shown, the limit is 10 %`."""
        if not self.visible or (self.name == "outcome" and self.seen == "bad"):
            return ""
        if self.shows_any:
            return f"{self.visible} would have shown"
        what = "more than" if signal_words.shown_signal(self.name).kind == "growth" else "a change of"
        if self.is_coarse:
            alone = " in a single version" if self.seen == "bad" else ""  # several versions together showed less
            limit = f", the limit is {self.limit}" if self.limit else ""
            return f"only {what} {self.visible}{alone} would have shown{limit}"
        return f"{what} {self.visible} would have shown"


def of(row: Row) -> list[Both]:
    """Return all signals of a row, in the order of the table of signals; [] if no cell was launched."""
    cells = [cell.result for cell in row.cells if cell is not None and cell.result.verdict.trials]
    verdicts = [entry.verdict for entry in cells]
    names = signal_words.in_order(verdicts)
    order = [*(name for name in ("memory", "step_time", "peak_memory") if name not in names), *names]
    return [_both(name, cells) for name in order] if cells else []


def _both(name: str, cells: Sequence[CellResult]) -> Both:
    known = [(entry, value) for entry in cells if (value := signal_words.value_of(name, entry.verdict)) is not None]
    ends = [known[0], known[-1]] if known else []
    like = numbers.middle(value for _, value in ends)
    digits = numbers.digits_apart(*(value for _, value in ends)) if ends else numbers.DIGITS
    figures = [_figure(name, *end, like, digits) for end in ends]
    seen = [entry.verdict.signals[name] for entry in cells if name in entry.verdict.signals]
    worst = min(seen, key=lambda signal: _ORDER.index(signal.seen), default=None)
    between = [entry for entry in cells if entry not in [end for end, _ in ends]]
    where = next((entry for entry in between if entry.verdict.signals.get(name) is worst), None)
    apart = any(signal_words.is_uncompared(name, entry.verdict) for entry, _ in ends)
    together = [] if apart or _is_early(name, cells) else cells
    visible = [value for entry in together if (value := signal_words.visible_of(name, entry.verdict)) is not None]
    lacks = _lacks(name, cells)
    why = "" if worst is None else signal_words.reason(worst)
    if worst is not None and worst.seen == "blind":
        why = "; ".join(text for _, text in words.absent(name, cells)) or why
    if where is not None and worst is not None and worst.seen == "suspect":
        why = f"{version(where.cell.image.version)}: {why}"  # the line names only the ends
    limit = next((signal.limit for signal in seen if signal.limit is not None), None)
    return Both(
        name=name,
        title=signal_words.shown_signal(name).title,
        old=figures[0][0] if known else "",
        new=figures[1][0] if len(known) > 1 else "",
        between=tuple(version(entry.cell.image.version) for entry, _ in ends[: len(known)]),
        undecided=tuple(is_open for _, is_open in figures),
        change=_change(name, ends) if len(known) > 1 else "",
        worst=_worst(name, known, like),
        limit=signal_words.limit_text(name, limit if seen else cells[0].cell.variant.scenario.limits.of(name)),
        visible=signal_words.visible_text(name, max(visible, default=None)),
        shows_any=signal_words.shows_any(name, max(visible, default=None)),
        is_coarse=any(signal_words.is_coarse(signal) for signal in seen),
        seen=None if worst is None else worst.seen,
        why="; ".join(filter(None, (why, lacks))),
        lacks=lacks,
    )


def is_untimed(entry: CellResult) -> bool:
    """Return whether the cell has no step time because its launches ran side by side with other launches."""
    has_none = entry.verdict.trials and signal_words.value_of("step_time", entry.verdict) is None
    return bool(has_none) and any(trial.conditions.beside for trial in entry.trials)


def _lacks(name: str, cells: Sequence[CellResult]) -> str:
    untimed = sum(map(is_untimed, cells)) if name == "step_time" else 0
    if not untimed:
        return ""
    if untimed == len(cells):
        return "the launches ran side by side"
    return f"not measured in {untimed:,} of {len(cells):,} versions, whose launches ran side by side"


def _worst(name: str, known: Sequence[tuple[CellResult, float]], like: float | None) -> str:
    """Return the worst bad figure between the oldest and the newest version; "" if one of these two is bad itself."""
    bad = [(entry, value) for entry, value in known if _is_bad(name, entry.verdict)]
    if not bad or any(entry is end for entry, _ in bad for end, _ in (known[0], known[-1])):
        return ""
    falls = signal_words.shown_signal(name).falls
    entry, value = max(bad, key=lambda pair: -pair[1] if falls else pair[1])
    return f"{signal_words.value_text(name, value, like=like)} in {version(entry.cell.image.version)}"


def _is_bad(name: str, verdict: CellVerdict) -> bool:
    known = verdict.signals.get(name)
    return known.seen == "bad" if known is not None else name == "memory" and "leak" in verdict.verdicts


def _figure(name: str, entry: CellResult, value: float, like: float | None, digits: int) -> tuple[str, bool]:
    """Return the figure as text, and whether it is an undecided growth.

    An undecided growth is shown with its interval, `7.3 (0 to 17.4) KiB/step`. Any other growth that does not differ
    from zero is `none`.
    """
    text = signal_words.value_text(name, value, like=like, digits=digits)
    interval = _interval(name, entry.verdict)
    if signal_words.shown_signal(name).kind != "growth" or (value if interval is None else interval[0]) > 0:
        return text, False
    if interval is None or not _is_suspect(name, entry.verdict):
        return _NONE, False
    figure, _, unit = text.rpartition(" ")
    low, high = (numbers.without_unit(signal_words.value_text(name, end), text) if end else "0" for end in interval)
    return f"{figure} ({low} to {high}) {unit}", True


def _interval(name: str, verdict: CellVerdict) -> Interval | None:
    return verdict.of(name).ci


def _is_suspect(name: str, verdict: CellVerdict) -> bool:
    known = verdict.signals.get(name)
    return known is not None and known.seen == "suspect"


def _is_early(name: str, cells: Iterable[CellResult]) -> bool:
    """Return whether the growth of any cell is suspect, in which case a leak of any size may be hidden in it."""
    growth = signal_words.shown_signal(name).kind == "growth"
    return growth and any(_is_suspect(name, entry.verdict) for entry in cells)


def _change(name: str, ends: Sequence[tuple[CellResult, float]]) -> str:
    """Return the change of a level; "" for growth, because a ratio to a rate near zero is meaningless."""
    (old, before), (new, after) = ends
    if signal_words.shown_signal(name).kind != "level":
        return ""
    return signal_words.changed(before, after) if _compared(name, old.verdict) and _compared(name, new.verdict) else ""


def _compared(name: str, verdict: CellVerdict) -> bool:
    """Return whether the figure was measured in the same rounds as the figures of the other versions."""
    return verdict.of(name).is_compared


# ---------------------------------------------------------------- a row on one line


def line(row: Row) -> str:
    """Return `6.2.0 → 6.6.4: step time 0.623 → 0.647 ms (+4 %; a change of 8 % would have shown); peak memory …`.

    Step time, peak memory and memory are always included, other signals only if they are bad or undecided. Return ""
    for a row without measurements.
    """
    by_name = {signal.name: signal for signal in of(row)}
    shown = [both for name in _ALWAYS if (both := by_name.get(name)) is not None and (both.old or both.lacks)]
    shown += [signal for signal in by_name.values() if signal not in shown and signal.old and signal.is_told]
    if not any(signal.old for signal in shown):
        return ""
    cells = [cell.result for cell in row.cells if cell is not None]
    measured = [
        one for one in cells if any(signal_words.value_of(both.name, one.verdict) is not None for both in shown)
    ]
    ends = tuple(version(entry.cell.image.version) for entry in (measured[0], measured[-1])[: len(measured)])
    return f"{' → '.join(ends)}: {'; '.join(_part(signal, ends) for signal in shown)}"


def _part(signal: Both, ends: tuple[str, ...]) -> str:
    if not signal.old:
        return f"{signal.title} not measured ({signal.why})"
    if signal_words.shown_signal(signal.name).kind == "growth":
        doubt = signal.why if signal.seen == "suspect" else ""
        return f"{_growth(signal)} ({signal.resolution or doubt or _NOT_COMPARED})"
    where = " → ".join(signal.between) if signal.between != ends and not signal.is_apart else ""
    doubt = ""
    if signal.change and not signal.resolution and signal.seen not in ("good", "bad"):
        doubt = signal.why if signal.seen == "none" else _TOO_FEW
    uncompared = f"{_NOT_COMPARED}: {signal.why}" if signal.why and signal.seen == "none" else _NOT_COMPARED
    if signal.name == "outcome":  # it is compared without a change or a minimum detectable effect
        uncompared = ""
    told = "; ".join(filter(None, (signal.change, signal.resolution or doubt))) or uncompared
    note = "; ".join(filter(None, (where, told)))
    return f"{signal.title} {signal.figures}{f' ({note})' if note else ''}"


def _growth(signal: Both) -> str:
    """Return `memory does not grow in 6.2.0 and 6.6.4, but grows by 5.06 KiB/step in 6.3.1`. An undecided figure, which
    has an interval, reads `may grow by`.
    """
    is_plural = signal_words.shown_signal(signal.name).plural
    does_not, grows = ("do not", "grow") if is_plural else ("does not", "grows")
    told = [
        f"{does_not} grow" if figure == _NONE else f"{'may grow' if is_open else grows} by {figure}"
        for figure, is_open in zip((signal.old, signal.new), signal.undecided, strict=True)
    ]
    if not signal.new:
        return f"{signal.title} {told[0]} in {signal.between[0]}"
    if told[0] != told[1]:
        text = " and ".join(f"{what} in {name}" for what, name in zip(told, signal.between, strict=True))
    else:
        text = f"{told[0]} in {' and '.join(signal.between)}"
    return f"{signal.title} {text}{f', but {grows} by {signal.worst}' if signal.worst else ''}"


# ---------------------------------------------------------------- a row in full

COLUMNS = ("signal", "state", "old → new", "change", "limit", "would have shown", "why")


def rows(row: Row) -> list[tuple[Both, tuple[str, ...]]]:
    """Return the texts for each signal of a row, in the order of COLUMNS."""
    return [
        (signal, (signal.title, _is(signal), signal.figures, signal.change, signal.limit, signal.visible, signal.why))
        for signal in of(row)
    ]


def _is(signal: Both) -> str:
    if signal.seen is None:
        return ""
    return f"{signal_marks.MARKS[signal.tone]} {signal_words.state_word(signal.seen)}"


def reasons(told: Iterable[Both]) -> list[str]:
    """Return the reasons for the signals' states, each once: `peak GPU memory, peak of the GPU pool: no GPU`."""
    by_reason: dict[str, list[str]] = {}
    for signal in told:
        if signal.why:
            by_reason.setdefault(signal.why, []).append(signal.title)
    return [f"{', '.join(titles)}: {why}" for why, titles in by_reason.items()]
