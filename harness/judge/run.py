"""Judges a whole run: the findings of all rows that pass Holm's correction within their scenario, whose fault they are,
and the verdict on the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.amounts import every, general
from harness.judge.attribution.cause import attribute
from harness.judge.attribution.group_faults import with_consequences
from harness.judge.comparison.printed_lines import NOTABLE_LINES, mask
from harness.judge.history.changes import FAMILY_ALPHA, holm
from harness.judge.history.exact_values import OTHER_LIMITS, relative
from harness.judge.history.returned_values import OTHER_RESULT, reached_steps
from harness.judge.signal_verdicts import with_findings
from harness.model import (
    BAD,
    METRIC_PREFIX,
    UNSETTLING,
    UNSURE,
    CellResult,
    Finding,
    HostState,
    JudgedRow,
    Metric,
    Observation,
    Plan,
    RunResult,
    RunVerdict,
    grouped,
    signal_of,
    worse_if,
)


def judge_run(
    plan: Plan,
    rows: Sequence[JudgedRow],
    hosts: Sequence[HostState] = (),
    *,
    directory: Path,
    started: str = "",
    duration_s: float = 0.0,
    warnings: Iterable[str] = (),
    interrupted: bool | None = False,
) -> RunResult:
    """Return the result of a run. `warnings`: those that come before the rows' own; `interrupted`: None if the run is
    still going on.
    """
    told = corrected(rows)
    cells = tuple(cell for row in told for cell in row.cells)
    findings = tuple(finding for row in told for finding in row.findings)
    verdict: RunVerdict = "running"
    if interrupted is not None:
        verdict = "interrupted" if interrupted else _verdict(cells, findings, hosts)
    observations = (*_of_all([each for row in rows for each in row.observations]), *_between_lanes(told))
    if verdict == "ok" and any(each.signal in UNSETTLING for each in observations):
        verdict = "inconclusive"
    return RunResult(
        matrix=plan.matrix.name,
        verdict=verdict,
        started=started,
        duration_s=duration_s,
        hosts=tuple(hosts),
        plan=plan,
        cells=cells,
        findings=findings,
        attribution=attribute(plan, cells, findings, observations),
        directory=directory,
        warnings=(*warnings, *(warning for row in rows for warning in row.warnings)),
        observations=observations,
    )


def _of_all(observations: Sequence[Observation]) -> Iterator[Observation]:
    """Yield what was seen in the rows. A new line that differs between rows in its numbers alone is told without those
    that differ, and so once."""

    def line(each: Observation) -> tuple[str, str, str] | None:
        is_line = each.last is not None and each.signal in ("log", *NOTABLE_LINES)
        return (each.series, each.after, mask(each.text)) if is_line else None

    texts = grouped((line(each), each.text.split(" ")) for each in observations)
    for each in observations:
        own = line(each)
        words = zip(*texts[own], strict=False)
        told = " ".join(some[0] if len(set(some)) == 1 else mask(some[0]) for some in words)
        yield each if own is None else replace(each, text=told)


def _verdict(cells: Sequence[CellResult], findings: Sequence[Finding], hosts: Sequence[HostState]) -> RunVerdict:
    """Return the most severe result of the run, which its exit status reports. A verdict is open if it is provisional,
    if a signal is blind, or if something bad was seen but not confirmed. A run without any launch is no good one, and
    if all versions fail before their first step, all that could run did.
    """
    stopped = [cell for cell in cells if cell.stopped]
    asked = [cell.verdict for cell in cells if not (cell.cell.excluded or cell.skipped)]
    asked += [cell.verdict for cell in stopped if cell.verdict.trials]
    verdicts = {verdict.verdict for verdict in asked}
    seen = {signal.seen for verdict in asked for signal in verdict.signals.values()}
    if verdicts & BAD or any(finding.kind != "first_fixed" or finding.verdict == "nan" for finding in findings):
        return "regression"
    nothing_ran = not stopped and not any(verdict.trials for verdict in asked)
    all_failed = verdicts == {"untested"} and all(verdict.trials for verdict in asked)
    if (
        nothing_ran
        or ("untested" in verdicts and not all_failed)
        or any(cell.problem for cell in cells)
        or any(host.problem for host in hosts)
    ):
        return "infrastructure"
    is_open = seen & {"blind", "suspect", "bad"} or any(verdict.provisional for verdict in asked)
    return "inconclusive" if stopped or all_failed or verdicts & UNSURE or is_open else "ok"


# ---------------------------------------------------------------- between lanes

BESIDE = ("step_time", "run_time", "peak_memory")
"""The levels whose difference between lanes is told."""


def _between_lanes(rows: Sequence[JudgedRow]) -> Iterator[Observation]:
    """Yield each result and each of the levels BESIDE that differs between a lane and the first one by more than its
    limit, to one side in all versions that both lanes judged: no row shows it, because its versions agree. A result is
    another one, which nobody should miss; those of launches that reached other steps are not compared."""
    places = grouped(((row.cells[0].cell.image.series, row.cells[0].cell.variant), row) for row in rows if row.cells)
    for first, row in ((own[0], row) for own in places.values() for row in own[1:]):
        pairs = [both for both in zip(first.cells, row.cells, strict=True) if all(each.verdict.trials for each in both)]
        lengths = {reached_steps([cell.trials for cell in each.cells]) for each in (first, row)}
        for name in dict.fromkeys(name for both in pairs for name in both[1].verdict.signals):
            shares = [(share, both) for both in pairs if (share := _share_between(name, *both)) is not None]
            alike = {math.copysign(bool(share), share) for share, _ in shares}
            if alike in ({1.0}, {-1.0}) and (name in BESIDE or len(lengths) == 1):
                versions = [both[1].cell.image.version for both in pairs]
                some = every(len(shares), "version") + (" that can be compared" if len(shares) < len(pairs) else "")
                share, both = min(shares, key=lambda each: abs(each[0]))
                yield Observation(
                    series=both[1].cell.image.series, lane=both[1].cell.lane, variant=both[1].cell.variant,
                    signal=name if name in BESIDE else OTHER_RESULT, text=f"{_apart(name, share, *both)} in {some}",
                    before=versions[0], after=versions[0], last=versions[-1],
                )  # fmt: skip


def _apart(name: Metric, share: float, first: CellResult, other: CellResult) -> str:
    """Return how far a signal is apart on two lanes, at least: a level by its ratio, a result by its figures."""
    there, here = first.cell.lane, other.cell.lane
    if name in BESIDE:
        more = f"{100 * abs(share):.0f} % {'above' if share > 0 else 'below'}"
        return f"on {here} at least {f'{general(1 + share, 2)} times' if share > 1 else more} that on {there}"
    old, new = (general(each.verdict.of(name).value or 0.0, 4) for each in (first, other))
    return f"{name.removeprefix(METRIC_PREFIX)} {old} on {there}, {new} on {here}, and at least as far apart"


def _share_between(name: Metric, first: CellResult, other: CellResult) -> float | None:
    """Return by what share of its value on the first lane a signal differs on the other; 0 if by less than its limit,
    None if it is no such signal or was not judged."""
    sides = [cell.verdict.of(name) for cell in (first, other)]
    (old, new), limit = ([side.value for side in sides]), sides[0].limit
    if old is None or new is None or limit is None or any(side.seen not in ("good", "bad") for side in sides):
        return None
    if name not in BESIDE:
        metric = name.removeprefix(METRIC_PREFIX)
        asked = {each.metric: each for each in first.cell.variant.scenario.limits.metrics}
        rule = asked[metric].rule if metric in asked else worse_if(metric) if metric != name else None
        if rule not in ("rise", "drop", "change") or (rule == "change" and metric not in asked):
            return None
        limit = limit if metric in asked else max(limit, OTHER_LIMITS[rule])
    share = relative(old, new)
    return share if abs(share) > limit else 0.0


# ---------------------------------------------------------------- findings


def corrected(rows: Sequence[JudgedRow]) -> list[JudgedRow]:
    """Return the rows of a run with the findings that pass its correction, entered in the verdicts of their cells.

    A change of a level rests on its p-value alone, so it must also pass Holm's correction over all comparisons of its
    scenario: family-wise error FAMILY_ALPHA, each signal with its weight in the table of signals. It also needs at
    least the signal's `rounds` launches on both sides. A repair passes with what it ends: without it, the versions
    after it would be called bad. A verdict (leak, crash) rests on launches that agree and is not corrected. A finding
    that another finding explains is marked as its consequence.
    """
    held, told = _held(rows), []
    for row in rows:
        known = {cell.cell.image.version: cell.verdict for cell in row.cells}
        launches = {one: min(known[side].trials for side in (one.before, one.after) if side) for one in row.findings}
        proven = {one for one in held & launches.keys() if launches[one] >= signal_of(one.metric).rounds}
        kept = _begun(one for one in row.findings if not _rests_on_p(one) or one.kind == "first_fixed" or one in proven)
        places = {(one.metric, one.after) for one in kept}
        verdicts = with_findings(known, kept, [one for one in row.findings if (one.metric, one.after) not in places])
        cells = tuple(replace(cell, verdict=verdict) for cell, verdict in zip(row.cells, verdicts, strict=True))
        findings = with_consequences(kept, list(known), dict(zip(known, verdicts, strict=True)), row.ratios)
        told.append(replace(row, cells=cells, findings=findings))
    return told


def _rests_on_p(finding: Finding) -> bool:
    """Return whether Holm's correction applies. How often launches fail or are slow is corrected row by row."""
    is_level = signal_of(finding.metric).kind in ("level", "value")
    return finding.p is not None and is_level and finding.verdict != "two modes"


def _held(rows: Sequence[JudgedRow]) -> set[Finding]:
    """Return the findings that pass Holm's correction. Comparisons without a change are included, with p = 1."""
    held: set[Finding] = set()
    for scenario in {row.scenario for row in rows}:
        own = [row for row in rows if row.scenario == scenario]
        family = [one for row in own for one in row.findings if _rests_on_p(one)]
        unchanged = [
            name
            for row in own
            for name in row.tested
            if not any(one.metric == name and _rests_on_p(one) for one in row.findings)
        ]
        p_values = [1.0 if one.p is None else one.p for one in family] + [1.0] * len(unchanged)
        weights = [signal_of(name).weight for name in (*(one.metric for one in family), *unchanged)]
        rejected = holm(p_values, FAMILY_ALPHA, weights=weights)
        held |= {one for one, is_held in zip(family, rejected, strict=False) if is_held}
    return held


def _begun(findings: Iterable[Finding]) -> list[Finding]:
    """Drop each `first_fixed` of a row whose `first_bad` was dropped: alone, it would make the good versions before it
    bad. A `worse` whose `first_bad` was dropped becomes a `first_bad`.
    """
    kept: list[Finding] = []
    bad: set[tuple[Metric, str]] = set()
    for one in findings:
        way = one.metric, one.verdict if signal_of(one.metric).kind == "value" else ""
        is_begun = way in bad or not _rests_on_p(one)
        if one.kind != "first_fixed" or is_begun:
            kept.append(one if is_begun or one.kind != "worse" else replace(one, kind="first_bad"))
            (bad.discard if one.kind == "first_fixed" else bad.add)(way)
    return kept
