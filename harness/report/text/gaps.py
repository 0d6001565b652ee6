"""Lists the cells and signals that were not measured, decided or checked, so that no reader mistakes them for good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.model import (
    GROUPS,
    METRIC_PREFIX,
    SIGNALS,
    Cell,
    CellResult,
    Image,
    Lane,
    RunResult,
    SignalVerdict,
    Variant,
)
from harness.reasons import Remedy, SignalReason
from harness.report.text import numbers, sensitivity, signal_marks, signal_words, words
from harness.report.text.harmless_text import plain, shortened, version

_SETUP_BAD = "; to call this bad, set `limits: {setup: bad}`"
_SO_FAR = f"fewer launches than a verdict needs; {Remedy.SAME_SWEEP()}"
_NO_METRICS = "the scenario returns none"
_NOTHING_LOGGED = "the program logs none"
_MOST_SCENARIOS = 3


def lines(result: RunResult) -> list[str]:
    """Return the lines on cells and signals that were not decided, or not measured as planned.

    Cells with the same verdict or signal, series, lane and reason share a line. Problems of a whole host are in
    `words.troubles`; cells that a search did not need are not gaps.
    """
    told: dict[tuple[str, str, str], list[CellResult]] = {}
    for what, reason, entry in [*_undecided(result), *_provisional(result)]:
        told.setdefault((what, _place(entry), shortened(reason, most=words.WHY_LENGTH)), []).append(entry)
    order = _in_the_series(result)
    return [
        *(_line(*key, cells=[entry.cell for entry in some], order=order) for key, some in told.items()),
        *_blind(result, order),
        *_unprinted(result),
    ]


def _undecided(result: RunResult) -> Iterator[tuple[str, str, CellResult]]:
    host_problems = {state.problem for state in result.hosts}
    fail_alone = set(_fails_alone(result))
    for entry in result.cells:
        known = words.tone(entry.verdict.verdict) in ("good", "bad")
        reason = entry.problem if known else words.why(entry)
        if (reason or not known) and reason not in host_problems and not sensitivity.is_needless(entry):
            name = f"{entry.verdict.verdict}{', launched once' if words.is_seen_once(entry) else ''}"
            if entry.cell in fail_alone:
                reason = shortened(reason, most=words.WHY_LENGTH - len(_SETUP_BAD)) + _SETUP_BAD
            yield f"{name}, {words.HINDERED}" if known else name, reason, entry


def _fails_alone(result: RunResult) -> Iterator[Cell]:
    """Yield the cells that failed before the first step although another version of the row did not.

    The limit `setup: bad` would call such a cell bad. Scenarios judged by their exit code are left out: exit code 125
    states that the version cannot be tested.
    """
    rows: dict[tuple[str, Lane, Variant], list[CellResult]] = {}
    for entry in result.cells:
        if entry.verdict.trials:  # the trials of an `untested` cell failed before the first step
            rows.setdefault((entry.cell.image.series, entry.cell.lane, entry.cell.variant), []).append(entry)
    for (_, _, variant), row in rows.items():
        failed = [entry.cell for entry in row if entry.verdict.verdict == "untested"]
        if len(failed) < len(row) and not variant.scenario.limits.setup_bad and not variant.scenario.judge_exit:
            yield from failed


def _provisional(result: RunResult) -> Iterator[tuple[str, str, CellResult]]:
    for entry in result.cells:
        if entry.verdict.provisional and words.tone(entry.verdict.verdict) in ("good", "bad"):
            stop = entry.skipped if entry.skipped is not None and entry.skipped.by == "stop" else None
            reason = _SO_FAR if stop is None else Remedy.SWEEP_WITHOUT_STOP(why=stop.why)
            yield f"{entry.verdict.verdict} so far", reason, entry


def _blind(result: RunResult, order: Mapping[Image, int]) -> Iterator[str]:
    """Yield a line for each combination of blind or suspect signal, place and reason."""
    told: dict[tuple[str, str, str, str], list[tuple[CellResult, SignalVerdict]]] = {}
    for entry in result.cells:
        for name in _open_signals(entry):
            blind = entry.verdict.signals[name]
            told.setdefault((name, blind.seen, _place(entry), signal_words.reason(blind)), []).append((entry, blind))
    for (name, _, place, reason), some in told.items():
        what = _range(name, [signal for _, signal in some])
        others = words.others_returned(name, [entry for entry, _ in some])
        yield _line(what, place, f"{reason}{others}", cells=[entry.cell for entry, _ in some], order=order)


def _unprinted(result: RunResult) -> Iterator[str]:
    """Yield a line for each program whose `printed:` has patterns that no output line matched in any launch, with an
    example of its output.
    """
    for name, cells in _by_scenario(result).items():
        program = cells[0].cell.variant.scenario.program
        seen = {signal for entry in cells for signal in entry.verdict.signals}
        asked = program.printed if program is not None else ()
        lacking = [plain(repr(pattern)) for metric, pattern in asked if f"{METRIC_PREFIX}{metric}" not in seen]
        if lacking and any(trial.last_step for entry in cells for trial in entry.trials):
            yield f"printed: {plain(name)}: no line matched {words.together(lacking)}; {_example(cells)}"


def _example(cells: Sequence[CellResult]) -> str:
    """Return an example of a line that a launch printed, with a number in it if any line has one."""
    outputs = (f"{trial.output.head}\n{trial.output.tail}" for entry in cells for trial in entry.trials)
    lines = [line for output in outputs for line in output.splitlines() if line.strip()]
    line = next((line for line in lines if any(map(str.isdigit, line))), next(iter(lines), ""))
    return f"it printed, e.g.: {shortened(line.strip(), most=words.WHY_LENGTH)}" if line else "it printed nothing"


def _open_signals(entry: CellResult) -> list[str]:
    """Return the blind and suspect signals of a cell that `_undecided` and `_provisional` do not report.

    `_undecided` reports an undecided cell's memory and outcome, `_provisional` all signals of a provisional cell.
    """
    own = "none" if entry.verdict.provisional else words.tone(entry.verdict.verdict)
    told = ("memory", "outcome") if own != "good" else ()
    if own == "none":
        return []
    names = signal_words.in_order([entry.verdict])
    return [name for name in names if entry.verdict.signals[name].seen in ("blind", "suspect") and name not in told]


def _range(name: str, some: Sequence[SignalVerdict]) -> str:
    """Return `step time: only ±35 % would have shown (limit 10 %)`, or `setup time: suspect`. If the cells differ, give
    the largest minimum detectable effect: `step time: at worst, only …`.
    """
    if some[0].seen == "suspect":
        return f"{signal_words.shown_signal(name).title}: suspect"
    differ = len({signal_words.blindness(name, signal) for signal in some}) > 1
    coarsest = max(some, key=lambda signal: signal.visible or 0.0)
    return signal_words.blindness(name, coarsest, how="at worst, " if differ else "")


def _place(entry: CellResult) -> str:
    return f"{plain(entry.cell.image.series)} on {words.lane_text(entry.cell.lane)}"


def _in_the_series(result: RunResult) -> Mapping[Image, int]:
    """Return the images, each with its place in the order of the series."""
    images = dict.fromkeys(entry.cell.image for entry in result.cells)
    return {image: place for place, image in enumerate(images)}


def _line(what: str, place: str, reason: str, *, cells: Sequence[Cell], order: Mapping[Image, int]) -> str:
    images = sorted({cell.image for cell in cells}, key=order.__getitem__)
    versions = list(dict.fromkeys(version(image.version) for image in images))
    variants = list(dict.fromkeys(words.variant_text(cell.variant) for cell in cells))
    some = words.some_of(versions, len(versions) if len(versions) <= 4 else 3)
    if len(set(cells)) < len(versions) * len(variants):  # some variants of some versions only
        some = f"{numbers.count(len(set(cells)), 'cell')} of {some}"
    which = variants[0] if len(variants) == 1 else f"{len(variants)} variants"
    return f"{what}: {some} ({place}, {which}){': ' if reason else ''}{reason}"


# ---------------------------------------------------------------- not checked


def asides(result: RunResult) -> list[str]:
    """Return lines on the limits of the report: the sensitivity, the signals not checked, the cells not needed."""
    return [
        text for text in (sensitivity.quiet_text(result), *not_looked_at(result), sensitivity.needless(result)) if text
    ]


def not_looked_at(result: RunResult) -> list[str]:
    """Return at most one line that names the signals that were not checked, which a good verdict does not cover.

    `not checked: peak GPU memory (no GPU); in train: results (the scenario returns none)`. If no signal of a group was
    checked, all for the same reason, the line names the group.
    """
    cells = _by_scenario(result)
    unseen = {name: _unseen(some) for name, some in cells.items()}
    everywhere = set.intersection(*map(set, unseen.values())) if unseen else set()
    some_where: dict[tuple[Unseen, ...], list[str]] = {}
    for name, of_scenario in unseen.items():
        some_where.setdefault(tuple(name for name in of_scenario if name not in everywhere), []).append(plain(name))
    first = next(iter(unseen.values()), [])
    parts = [_reasoned([name for name in first if name in everywhere])]
    parts += [
        f"in {words.some_of(names, _MOST_SCENARIOS)}: {_reasoned(unseen_there)}"
        for unseen_there, names in some_where.items()
        if unseen_there
    ]
    told = "; ".join(filter(None, parts))
    return [f"not checked: {told}"] if told else []


def _by_scenario(result: RunResult) -> dict[str, list[CellResult]]:
    """Return the cells that were launched, by the name of their scenario."""
    cells: dict[str, list[CellResult]] = {}
    for entry in result.cells:
        if entry.verdict.trials:
            cells.setdefault(entry.cell.variant.scenario.name, []).append(entry)
    return cells


Unseen = tuple[str, str]
"""The name of a signal or of a group of signals, and why it was not checked."""


def _reasoned(unseen: Iterable[Unseen]) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, why in unseen:
        by_reason.setdefault(why, []).append(name)
    return ", ".join(f"{words.together(names)} ({why})" for why, names in by_reason.items())


def _unseen(cells: Sequence[CellResult]) -> list[Unseen]:
    """Return the signals and groups that were not checked in any of these cells of one scenario."""
    reasons = _reasons(cells)
    found: list[Unseen] = []
    for group in GROUPS:
        of_group = {name: why for name, why in reasons.items() if signal_words.shown_signal(name).group == group}
        judged = [name for name, signal in SIGNALS.items() if signal.group == group and signal.kind != "observation"]
        if len(of_group) > 1 and len(of_group) == len(judged) and len(set(of_group.values())) == 1:
            found.append((signal_marks.GROUP_NAMES[group], next(iter(of_group.values()))))
        else:
            found += [(signal_words.shown_signal(name).title, why) for name, why in of_group.items()]
    if _is_known(cells) and not _has_values(cells):
        scenario = cells[0].cell.variant.scenario
        why = _NO_METRICS if scenario.program is None else _NOTHING_LOGGED
        found.append((signal_marks.GROUP_NAMES["values"], why))
    return found


def _reasons(cells: Sequence[CellResult]) -> Mapping[str, str]:
    """Return, for each signal that was not checked in any of these cells of one scenario, the reason."""
    scenario = cells[0].cell.variant.scenario
    found: dict[str, str] = {}
    for name in [name for name, signal in SIGNALS.items() if signal.kind != "observation"]:
        seen = [entry.verdict.signals[name] for entry in cells if name in entry.verdict.signals]
        if SIGNALS[name].limit is not None and scenario.limits.of(name) is None:
            found[name] = SignalReason.LIMIT_IS_NONE()
        elif seen and all(signal.seen == "none" for signal in seen):
            found[name] = next((plain(signal.why) for signal in seen if signal.why), SignalReason.NOT_MEASURED())
        elif not seen and _is_known(cells):
            found[name] = SignalReason.NOT_MEASURED()
    return found


def _is_known(cells: Iterable[CellResult]) -> bool:
    """Return whether any signal was recorded; runs of early versions of the harness recorded none."""
    return any("outcome" in entry.verdict.signals for entry in cells)


def _has_values(cells: Iterable[CellResult]) -> bool:
    return any(name.startswith(METRIC_PREFIX) for entry in cells for name in entry.verdict.signals)
