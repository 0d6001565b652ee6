"""Attributes faults to the image, the GPU, the host or an interaction, and to params. Pure.

The cause follows from the table of images × lanes (`image_or_gpu`), the params from the smallest rule (`param_rules`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from harness.judge.attribution.clean_rows import LaneOfVariant, RowStates, with_clean_rows
from harness.judge.attribution.group_faults import Fault, alike, faults_of
from harness.judge.attribution.image_or_gpu import (
    Square,
    SquareAnswer,
    SquareCell,
    answer,
    episodes_in,
    metric_of,
    model_of,
    row_states,
    signs,
)
from harness.judge.attribution.param_rules import find_rule
from harness.judge.comparable import software
from harness.judge.history.transitions import FailureName
from harness.judge.launches import AGREE
from harness.model import (
    FAILURES,
    GOOD,
    Attribution,
    Cell,
    CellResult,
    CellVerdict,
    Episode,
    Finding,
    Install,
    Lane,
    Plan,
    Variant,
    VersionRow,
    grouped,
    signal_of,
)
from harness.model.attributed import Sign


def attribute(plan: Plan, cells: Iterable[CellResult], findings: Sequence[Finding]) -> tuple[Attribution, ...]:
    """Return the attribution of each fault, in the plan's order and, for each metric, the oldest fault first.

    A fault is an episode, merged over lanes and variants by `group_faults.py`, and has its own rule of params.
    Consequences of other findings are not faults.
    """
    known = {entry.cell.id: entry for entry in cells}
    attributions = []
    rows_of = grouped(((row.series.name, row.variant.scenario.name), row) for row in plan.rows)
    for (series, scenario), rows in rows_of.items():
        own = [finding for finding in findings if (finding.series, finding.variant.scenario.name) == (series, scenario)]
        for sign in signs(own):
            seen = {(row.variant, row.lane): row_states(row, known, own, sign=sign) for row in rows}
            states = with_clean_rows(rows, seen, known, own, sign=sign)
            for faults in _faults(rows, states, known, own, sign=sign):
                group = _Group(
                    plan=plan, rows=rows, known=known, findings=findings, sign=sign, states=states, faults=faults
                )
                attributions.append(group.attribution())
    return tuple(attributions)


def _faults(
    rows: Sequence[VersionRow],
    states: Mapping[LaneOfVariant, RowStates],
    known: Mapping[str, CellResult],
    findings: Sequence[Finding],
    *,
    sign: Sign,
) -> list[list[Fault]]:
    failures = {(row.variant, row.lane): _failures(row, known) for row in rows if sign == "outcome"}
    of: dict[Variant, dict[Lane, Sequence[Episode]]] = {}
    for row in rows:
        place = (row.variant, row.lane)
        of.setdefault(row.variant, {})[row.lane] = episodes_in(row, states[place], findings, sign=sign)
    faults = [
        fault
        for variant, episodes in of.items()
        for fault in faults_of(
            variant,
            episodes,
            {lane: states[variant, lane] for lane in episodes},
            {lane: failures.get((variant, lane), ()) for lane in episodes},
        )
        if any(True in on_lane for on_lane in fault.states.values())  # contradictory findings have no bad version
    ]
    return alike(faults)


def _failures(row: VersionRow, known: Mapping[str, CellResult]) -> list[set[FailureName]]:
    """Return what tells apart the failures that were seen in each version of a row."""
    trials = [known[cell.id].trials if cell.id in known else () for cell in row.cells]
    return [{trial.failed_by for trial in own if trial.end in FAILURES} for own in trials]


def deciding_cells(attributions: Iterable[Attribution]) -> tuple[Cell, ...]:
    """Return the cells that would settle the undecided causes, without duplicates. The matrix may exclude some."""
    undecided = [attribution for attribution in attributions if attribution.cause == "undecided"]
    return tuple({cell.id: cell for attribution in undecided for cell in attribution.missing}.values())


# ---------------------------------------------------------------- one group of variants


@dataclass(frozen=True, kw_only=True)
class _Group:
    """One fault in the variants of a scenario that have it, with all results of the scenario in that series.

    `states` holds the states of each variant on each lane, for any fault.
    """

    plan: Plan
    rows: Sequence[VersionRow]
    known: Mapping[str, CellResult]
    findings: Sequence[Finding]
    sign: Sign
    states: Mapping[LaneOfVariant, RowStates]
    faults: Sequence[Fault]

    @cached_property
    def variants(self) -> list[Variant]:
        """Return the variants with this fault, in the plan's order."""
        having = {fault.variant for fault in self.faults}
        return [variant for variant in dict.fromkeys(row.variant for row in self.rows) if variant in having]

    @cached_property
    def places(self) -> dict[LaneOfVariant, RowStates]:
        """Return the states by variant and lane: for this fault, or, in variants without it, for any fault."""
        own = {(fault.variant, lane): on_lane for fault in self.faults for lane, on_lane in fault.states.items()}
        return {**self.states, **own}

    def attribution(self) -> Attribution:
        square = self._square()
        result = answer(square)
        series, versions = self.rows[0].series, [cell.image.version for cell in self.rows[0].cells]
        asked = len({row.variant for row in self.rows})
        bad, good, unknown, otherwise = self._sides(square)
        rule = find_rule(bad, good, unknown, otherwise=otherwise) if asked > 1 else None
        lanes = square.lanes
        bad_lanes = [lanes[place] for place in sorted(result.bad)]
        images = tuple(versions[image] for image in square.images if square.lanes_at(image, True))
        states = {place: own for place, own in self.places.items() if place[0] in self.variants}
        return Attribution(
            series=series.name,
            scenario=self.variants[0].scenario.name,
            metric=metric_of(self.sign),
            cause=result.cause,
            variants=tuple(self.variants),
            episodes=tuple(self._episodes(bad_lanes)),
            bad_lanes=tuple(bad_lanes),
            good_lanes=tuple(lanes[place] for place in sorted(result.good)),
            open_lanes=(
                *(lanes[n] for n in range(len(lanes)) if n not in result.bad | result.good),
                *self._not_planned(),
            ),
            cleared=tuple(lanes[place] for place in sorted(result.cleared)),
            images=images,
            apart=result.apart,
            alike=len(set(map(model_of, bad_lanes))) == 1,
            doubt=result.doubt,
            rule=rule,
            unruly=asked > 1 and rule is None,
            layer=self._layer(),
            controls=tuple(self._controls(bad_lanes, images)),
            missing=self._missing(square, result),
            machines=tuple(dict.fromkeys(machine for machine in self._where(states, True) if machine)),
            suspect=self._suspect(),
            software=square.software_of(result.bad, result.good),
        )

    def _software(self, lane: Lane) -> dict[str, str]:
        """Return the driver and the kernel of a lane's machine, as its GPUs and launches report them."""
        cells = (cell for row in self.rows if row.lane == lane for cell in row.cells if cell.id in self.known)
        trials = (trial for cell in cells for trial in self.known[cell.id].trials)
        return software((gpu.driver for gpu in lane.gpus), (trial.fingerprint.get("kernel") for trial in trials))

    def _suspect(self) -> str:
        """Return the machine of a pool that may itself be at fault, or "": every cell on it is bad, and every bad cell
        is on it. Each row runs on a single machine, so the fault of a machine looks like one of the params of its rows.
        """
        bad, good = set(self._where(self.states, True)), set(self._where(self.states, False)) - {""}
        return bad.pop() if len(bad) == 1 and good and not bad & good else ""

    def _where(self, states: Mapping[LaneOfVariant, RowStates], state: bool) -> Iterator[str]:
        """Yield the machine of each cell with this state; "" for a cell whose host is not a pool."""
        for row in self.rows:
            for cell, own in zip(row.cells, states.get((row.variant, row.lane), ()), strict=False):
                if own is state and cell.id in self.known:
                    yield self.known[cell.id].machine

    def _episodes(self, lanes: Sequence[Lane]) -> Iterator[Episode]:
        of = {fault.variant: fault.episodes for fault in self.faults}
        for variant in self.variants:
            for lane in lanes:
                yield from of[variant].get(lane, ())

    def _square(self) -> Square:
        """Merge the states of the variants with this fault, which do not contradict each other, into one square."""
        lanes = list(dict.fromkeys(row.lane for row in self.rows))
        merged = []
        for lane in lanes:
            own = [self.places[variant, lane] for variant in self.variants if (variant, lane) in self.places]
            width = len(self.rows[0].cells)
            merged.append([next((one[n] for one in own if one[n] is not None), None) for n in range(width)])
        return Square(lanes=lanes, states=merged, software=[self._software(lane) for lane in lanes])

    def _sides(self, square: Square) -> tuple[list[Variant], list[Variant], list[Variant], list[Variant]]:
        """Return the variants that have this fault or show it beside another failure, those that are good where these
        are bad, those that are unknown there, and those with another fault.
        """
        having, good, unknown, otherwise = list(self.variants), list[Variant](), list[Variant](), list[Variant]()
        bad = [(lane, image) for lane in range(len(square.lanes)) for image in square.images_of(lane, True)]
        new = self._new_failures(square)
        for variant in dict.fromkeys(row.variant for row in self.rows):
            on_lanes = {n: self.places.get((variant, lane)) for n, lane in enumerate(square.lanes)}
            states = {own[image] for lane, image in bad if (own := on_lanes[lane]) is not None}
            if variant in self.variants:
                continue
            is_apart = True in states and self.sign != "outcome"  # failures that began apart may still be one
            is_seen = bool(new and new & self._failures_in({variant}, square, True))
            (good if False in states else otherwise if is_apart else having if is_seen else unknown).append(variant)
        return having, good, unknown, otherwise

    def _new_failures(self, square: Square) -> set[FailureName]:
        """Return the failures of the versions with this fault that no variant has in the versions without it."""
        if self.sign != "outcome":
            return set()
        every = {row.variant for row in self.rows}
        return self._failures_in(set(self.variants), square, True) - self._failures_in(every, square, False)

    def _failures_in(self, variants: Set[Variant], square: Square, state: bool) -> set[FailureName]:
        """Return the failures of these variants in the versions that have this state on a lane."""
        return {
            name
            for row in self.rows
            if row.variant in variants
            for at, names in enumerate(_failures(row, self.known))
            if square.states[square.lanes.index(row.lane)][at] is state
            for name in names
        }

    def _not_planned(self) -> Iterator[Lane]:
        """Yield a lane for each host of the matrix that this run left out."""
        planned = {row.lane.host.name for row in self.rows}
        allowed = self.variants[0].scenario.hosts
        for host in self.plan.matrix.hosts:
            if host.name not in planned and host.name in (allowed or (host.name,)):
                yield Lane(host=host)

    def _layer(self) -> str | None:
        """Return the layer on which all bad cells of a leak agree, or None."""
        if self.sign != "memory":
            return None
        layers = {
            self.known[cell.id].verdict.layer
            for row in self.rows
            if row.variant in self.variants
            for cell, state in zip(row.cells, self.places[row.variant, row.lane], strict=True)
            if state
        }
        return layers.pop() if len(layers) == 1 else None

    def _controls(self, lanes: Sequence[Lane], versions: Collection[str]) -> Iterator[str]:
        """Yield the scenarios of the series that are good in every cell on all these lanes, have no finding there, and
        ran each variant in at least one of the bad `versions`. Findings matter because a cell that is good by itself
        may still be worse than the one before.
        """
        series = self.rows[0].series.name
        worse = {finding.variant.scenario.name for finding in self.findings if finding.lane in lanes}
        others = grouped(
            (row.variant.scenario.name, row)
            for row in self.plan.rows
            if row.series.name == series and row.lane in lanes
        )
        for name, rows in others.items():
            everywhere = {row.lane for row in rows} == set(lanes)
            if name not in worse and everywhere and all(self._stays_good(row, versions) for row in rows):
                yield name

    def _stays_good(self, row: VersionRow, versions: Collection[str]) -> bool:
        """Return whether every cell that could run is good in this fault's signal, including one of these versions."""
        known = [entry for cell in row.cells if (entry := self.known.get(cell.id)) is not None]
        ran = [entry for entry in known if entry.verdict.verdict not in ("untested", "incompatible")]
        failed = any(entry.problem and entry.cell.image.version in versions for entry in known)
        seen = any(entry.cell.image.version in versions for entry in ran)
        return seen and not failed and all(self._is_good(entry.verdict) for entry in ran)

    def _is_good(self, verdict: CellVerdict) -> bool:
        """Return whether a cell is good, and was judged for this fault's signal in enough launches."""
        metric = metric_of(self.sign)
        signal = verdict.signals.get(metric)
        looked = not verdict.signals or (signal is not None and signal.seen == "good")
        is_small = signal_of(metric).kind == "growth" and verdict.grows_slowly(metric)
        return verdict.verdict in GOOD and not verdict.provisional and looked and not is_small

    def _missing(self, square: Square, result: SquareAnswer) -> tuple[Cell, ...]:
        """Return the cell that would best settle the cause, if there is one. Cells that were launched but are undecided
        come after cells that were not launched, and cells that the matrix excludes come last.
        """
        cells = [cell for place in result.wanted if (cell := self._cell(square, place)) is not None]
        launched = {name for name, entry in self.known.items() if entry.verdict.trials >= AGREE}
        return tuple(sorted(cells, key=lambda cell: (cell.excluded is not None, cell.id in launched))[:1])

    def _cell(self, square: Square, place: SquareCell) -> Cell | None:
        """Return the cell at a position of the square, for the first bad variant. None if it can never run, or if its
        state is known, for example because another fault hides this one.
        """
        lane, image = place
        rows = {row.variant: row for row in self.rows if row.lane == square.lanes[lane]}
        variant = next((variant for variant in self.variants if variant in rows), None)
        if variant is None or self.states[variant, square.lanes[lane]][image] is not None:
            return None
        cell = rows[variant].cells[image]
        entry, needs_install = self.known.get(cell.id), cell.lane.host.can.makes_environments
        is_incompatible = entry is not None and entry.verdict.verdict == "incompatible"
        return None if is_incompatible or (needs_install and not isinstance(cell.image.source, Install)) else cell
