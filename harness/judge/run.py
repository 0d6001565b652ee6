"""Judges a whole run: the findings of all rows that pass Holm's correction within their scenario, whose fault they are,
and the verdict on the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.judge.attribution.cause import attribute
from harness.judge.attribution.group_faults import with_consequences
from harness.judge.history.changes import FAMILY_ALPHA, holm
from harness.judge.signal_verdicts import with_findings
from harness.model import (
    BAD,
    UNSETTLING,
    UNSURE,
    CellResult,
    Finding,
    HostState,
    JudgedRow,
    Metric,
    Plan,
    RunResult,
    RunVerdict,
    signal_of,
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
    observations = tuple(each for row in rows for each in row.observations)
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
        attribution=attribute(plan, cells, findings),
        directory=directory,
        warnings=(*warnings, *(warning for row in rows for warning in row.warnings)),
        observations=observations,
        replicates=sum(row.replicates for row in rows),
    )


def _verdict(cells: Sequence[CellResult], findings: Sequence[Finding], hosts: Sequence[HostState]) -> RunVerdict:
    """Return the most severe result of the run, which its exit status reports. A verdict is open if it is provisional,
    if a signal is blind, or if something bad was seen but not confirmed. A run without any launch is no good one.
    """
    stopped = [cell for cell in cells if cell.stopped]
    asked = [cell.verdict for cell in cells if not (cell.cell.excluded or cell.skipped)]
    asked += [cell.verdict for cell in stopped if cell.verdict.trials]
    verdicts = {verdict.verdict for verdict in asked}
    seen = {signal.seen for verdict in asked for signal in verdict.signals.values()}
    if verdicts & BAD or any(finding.kind != "first_fixed" for finding in findings):
        return "regression"
    nothing_ran = not stopped and not any(verdict.trials for verdict in asked)
    if (
        nothing_ran
        or "untested" in verdicts
        or any(cell.problem for cell in cells)
        or any(host.problem for host in hosts)
    ):
        return "infrastructure"
    is_open = seen & {"blind", "suspect", "bad"} or any(verdict.provisional for verdict in asked)
    return "inconclusive" if stopped or verdicts & UNSURE or is_open else "ok"


# ---------------------------------------------------------------- findings


def corrected(rows: Sequence[JudgedRow]) -> list[JudgedRow]:
    """Return the rows of a run with the findings that pass its correction, entered in the verdicts of their cells.

    A change of a level rests on its p-value alone, so it must also pass Holm's correction over all comparisons of its
    scenario: family-wise error FAMILY_ALPHA, each signal with its weight in the table of signals. It also needs at
    least the signal's `rounds` launches on both sides. A verdict (leak, crash) rests on launches that agree and is not
    corrected. A finding that another finding explains is marked as its consequence.
    """
    held, told = _held(rows), []
    for row in rows:
        known = {cell.cell.image.version: cell.verdict for cell in row.cells}
        kept = _begun(
            one
            for one in row.findings
            if not _rests_on_p(one)
            or (
                one in held
                and min(known[side].trials for side in (one.before, one.after) if side is not None)
                >= signal_of(one.metric).rounds
            )
        )
        places = {(one.metric, one.after) for one in kept}
        verdicts = with_findings(known, kept, [one for one in row.findings if (one.metric, one.after) not in places])
        cells = tuple(replace(cell, verdict=verdict) for cell, verdict in zip(row.cells, verdicts, strict=True))
        told.append(
            replace(
                row,
                cells=cells,
                findings=with_consequences(kept, list(known), dict(zip(known, verdicts, strict=True)), row.ratios),
            )
        )
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
