"""Finds the state of each cell of a row for one sign, from verdicts and findings: bad, good, or unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.judge.history.transitions import UNTOLD
from harness.model import FAILURES, SIGNALS, CellResult, CellVerdict, Episode, Finding, Metric, VersionRow, signal_of
from harness.model.episodes import Sign, episodes_of, sign_of
from harness.model.judged import State

_FIRST: tuple[Sign, ...] = ("outcome", "memory", "slowdown")


def signs(findings: Sequence[Finding]) -> list[Sign]:
    """Return the signs with a finding, in the order of the table of signals, followed by the scenario's own metrics."""
    present = dict.fromkeys(map(sign_of, findings))
    return [sign for sign in dict.fromkeys((*_FIRST, *SIGNALS, *present)) if sign in present]


def metric_of(sign: Sign) -> Metric:
    """Return the metric of a sign: `step_time` for a slowdown."""
    return "step_time" if sign == "slowdown" else sign


def row_states(
    row: VersionRow, known: Mapping[str, CellResult], findings: Sequence[Finding], *, sign: Sign
) -> tuple[State, ...]:
    """Return the state of each image of a row, oldest first: that of the findings if the cell was judged, else None.

    Findings decide because they account for the baseline and for flaky failures. The states of both sides of a finding
    are always known. A slowdown without a finding is unknown: it may be the baseline's, or part of a leak's finding.
    """
    own = _of(row, findings, sign)
    versions = [cell.image.version for cell in row.cells]
    sides = {version for finding in own for version in (finding.before, finding.after)}
    smallest = _smallest(findings, sign)
    judged = [
        cell.image.version in sides
        or (cell.id in known and _is_judged(known[cell.id].verdict, sign, smallest=smallest))
        for cell in row.cells
    ]
    if metric_of(sign) == sign and signal_of(sign).kind == "level" and sum(judged) < 2:
        return (None,) * len(judged)  # a level needs another version for comparison
    unclear = {version for finding in own for version in finding.untestable} - sides
    slower = [cell.id in known and sign in known[cell.id].verdict.verdicts for cell in row.cells]
    return tuple(
        state if ok and version not in unclear and (state or not slow) else None
        for version, ok, slow, state in zip(versions, judged, slower, _history(versions, own), strict=True)
    )


def episodes_in(
    row: VersionRow, states: Sequence[State], findings: Sequence[Finding], *, sign: Sign
) -> tuple[Episode, ...]:
    """Return the row's episodes that are not consequences, oldest first; `states` are the states of its images."""
    versions = [cell.image.version for cell in row.cells]
    order = {version: place for place, version in enumerate(versions)}
    episodes = episodes_of(_of(row, findings, sign), order, states)
    return tuple(episode for episode in episodes if not episode.finding.consequence_of)


def _of(row: VersionRow, findings: Sequence[Finding], sign: Sign) -> list[Finding]:
    place = (row.series.name, row.lane, row.variant, sign)
    return [
        finding for finding in findings if (finding.series, finding.lane, finding.variant, sign_of(finding)) == place
    ]


def _is_judged(verdict: CellVerdict, sign: Sign, *, smallest: float) -> bool:
    """Return whether a cell was judged for this sign in enough launches and, for a level, precisely enough to show a
    change of the size `smallest`. A flat cell was judged for leaks even if the GPU's memory had too few samples.
    """
    if verdict.provisional:
        return False
    failed = bool(FAILURES & set(verdict.verdicts))
    seen = verdict.signals.get(sign)
    if seen is not None and sign not in ("outcome", "memory"):
        is_level = signal_of(sign).kind == "level"
        would_show = is_level and seen.seen == "blind" and seen.visible is not None and seen.visible < smallest
        return seen.seen in ("good", "bad") or would_show
    if verdict.verdict in UNTOLD or sign == "outcome":
        return verdict.verdict not in UNTOLD
    own = {"memory": "leak", "slowdown": "slowdown"}.get(sign)
    if own is not None:
        return not failed or own in verdict.verdicts
    leaks = sign == "peak_memory" and "leak" in verdict.verdicts
    is_measured = sign not in ("step_time", "peak_memory") or verdict.of(sign).value is not None
    return is_measured and not failed and not leaks


def _smallest(findings: Sequence[Finding], sign: Sign) -> float:
    """Return the smallest change of a level among the findings of a sign, as a share; 0 if none is a ratio."""
    effects = [finding.effect for finding in findings if sign_of(finding) == sign and finding.effect is not None]
    ratios = [effect.value for effect in effects if effect.unit == "ratio" and effect.value > 0]
    return min((max(ratio, 1 / ratio) - 1 for ratio in ratios), default=0.0)


def _history(versions: Sequence[str], findings: Sequence[Finding]) -> list[bool]:
    """Return, for each version, whether the findings make it bad."""
    changes = {finding.after: finding.kind != "first_fixed" for finding in findings}
    first = next((changes[version] for version in versions if version in changes), True)
    bad, states = not first, []
    for version in versions:
        bad = changes.get(version, bad)
        states.append(bad)
    return states
