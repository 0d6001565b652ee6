"""Attributes faults to the image, the GPU, the host or an interaction, and to params. Pure.

The cause follows from the table of images × lanes (`image_or_gpu`), the params from the smallest rule (`param_rules`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.judge.attribution.group_faults import Fault, alike, faults_of
from harness.judge.attribution.image_or_gpu import Square, SquareAnswer, SquareCell, answer, model_of
from harness.judge.attribution.param_rules import find_rule
from harness.judge.attribution.row_states import LaneOfVariant, RowStates, SignInRows, metric_of, signs
from harness.judge.comparable import software
from harness.judge.history.transitions import FailureName
from harness.judge.launches import AGREE
from harness.model import (
    GOOD,
    Attribution,
    Cell,
    CellResult,
    CellVerdict,
    Finding,
    Install,
    Lane,
    Plan,
    Variant,
    VersionRow,
    grouped,
    signal_of,
)
from harness.model.signals import is_told_alone


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
            of = SignInRows(rows=rows, known=known, findings=own, sign=sign)
            groups = (_Group(plan=plan, findings=findings, of=of, faults=faults) for faults in alike(_faults(of)))
            attributions += [group.attribution() for group in groups]
    return tuple(attributions)


def _faults(of: SignInRows) -> list[Fault]:
    """Return the faults of each variant."""
    lanes = grouped((row.variant, row.lane) for row in of.rows)
    found = [
        fault
        for variant, own in lanes.items()
        for fault in faults_of(
            variant,
            {lane: of.episodes((variant, lane)) for lane in own},
            {lane: of.states[variant, lane] for lane in own},
            {lane: of.failures[variant, lane] for lane in own} if of.sign == "outcome" else {},
        )
    ]
    # Contradictory findings have no bad version.
    return [fault for fault in found if any(True in states for states in fault.states.values())]


def deciding_cells(attributions: Iterable[Attribution]) -> tuple[Cell, ...]:
    """Return the cells that would settle a cause, without duplicates. The matrix may exclude some."""
    return tuple({cell.id: cell for attribution in attributions for cell in attribution.missing}.values())


# ---------------------------------------------------------------- one group of variants


@dataclass(frozen=True, kw_only=True)
class _Group:
    """One fault in the variants of a scenario that have it. `of`: what is known of its sign in all variants and lanes;
    `findings`: those of the run.
    """

    plan: Plan
    findings: Sequence[Finding]
    of: SignInRows
    faults: Sequence[Fault]

    @cached_property
    def variants(self) -> list[Variant]:
        """Return the variants with this fault, in the plan's order."""
        having = {fault.variant for fault in self.faults}
        return [variant for variant in dict.fromkeys(row.variant for row in self.of.rows) if variant in having]

    @cached_property
    def places(self) -> dict[LaneOfVariant, RowStates]:
        """Return the states by variant and lane: for this fault, or, in variants without it, for any fault."""
        own = {(fault.variant, lane): on_lane for fault in self.faults for lane, on_lane in fault.states.items()}
        return {**self.of.states, **own}

    def attribution(self) -> Attribution:
        square = self._square()
        result = self._answer(square)
        asked = len({row.variant for row in self.of.rows})
        bad, good, unknown, otherwise = self._sides(square)
        rule = find_rule(bad, good, unknown, otherwise=otherwise) if asked > 1 else None
        lanes, versions = square.lanes, list(self.of.order)
        bad_lanes = [lanes[place] for place in sorted(result.bad)]
        images = tuple(versions[image] for image in square.images if square.lanes_at(image, True))
        episodes = {fault.variant: fault.episodes for fault in self.faults}
        having = self._cells({place: own for place, own in self.places.items() if place[0] in self.variants}, True)
        layers = {cell.verdict.layer for cell in having if self.of.sign == "memory"}
        return Attribution(
            series=self.of.rows[0].series.name,
            scenario=self.variants[0].scenario.name,
            metric=metric_of(self.of.sign),
            cause=result.cause,
            variants=tuple(self.variants),
            episodes=tuple(
                each for variant in self.variants for lane in bad_lanes for each in episodes[variant].get(lane, ())
            ),
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
            layer=layers.pop() if len(layers) == 1 else None,  # on which all bad cells agree
            controls=tuple(self._controls(bad_lanes, images)),
            missing=self._missing(square, result),
            machines=tuple(dict.fromkeys(cell.machine for cell in having if cell.machine)),
            suspect=self._suspect(),
            software=square.software_of(result.bad, result.good),
        )

    def _cells(self, states: Mapping[LaneOfVariant, RowStates], state: bool) -> list[CellResult]:
        """Return the cells with this state, as far as they are known."""
        pairs = (zip(self.of.cells[place], own, strict=True) for place, own in states.items())
        return [cell for row in pairs for cell, own in row if own is state and cell is not None]

    def _suspect(self) -> str:
        """Return the machine of a pool that may itself be at fault, or "": every cell on it is bad, and every bad cell
        is on it. Each row runs on a single machine, so the fault of a machine looks like one of the params of its rows.
        """
        bad, good = ({cell.machine for cell in self._cells(self.of.states, state)} for state in (True, False))
        good -= {""}  # of a host that is no pool
        return bad.pop() if len(bad) == 1 and good and not bad & good else ""

    def _square(self) -> Square:
        """Merge the states of the variants with this fault, which do not contradict each other, into one square."""
        lanes = list(dict.fromkeys(row.lane for row in self.of.rows))
        rows = [[self.places[each, lane] for each in self.variants if (each, lane) in self.places] for lane in lanes]
        states = [
            [next((one[n] for one in own if one[n] is not None), None) for n in range(len(self.of.order))]
            for own in rows
        ]
        return Square(lanes=lanes, states=states, software=[self._software(lane) for lane in lanes])

    def _software(self, lane: Lane) -> dict[str, str]:
        """Return the driver and the kernel of a lane's machine, as its GPUs and launches report them."""
        cells = [cell for place, own in self.of.cells.items() if place[1] == lane for cell in own if cell is not None]
        kernels = (trial.fingerprint.get("kernel") for cell in cells for trial in cell.trials)
        return software((gpu.driver for gpu in lane.gpus), kernels)

    def _sides(self, square: Square) -> tuple[list[Variant], list[Variant], list[Variant], list[Variant]]:
        """Return the variants that have this fault or show it beside another failure, those that are good where these
        are bad, those that are unknown there, and those with another fault.
        """
        having, good, unknown, otherwise = list(self.variants), list[Variant](), list[Variant](), list[Variant]()
        bad = [(lane, image) for lane in range(len(square.lanes)) for image in square.images_of(lane, True)]
        every, is_failure = list(dict.fromkeys(row.variant for row in self.of.rows)), self.of.sign == "outcome"
        # The failures of the versions with this fault that no variant has in the versions without it.
        new = self._failures_in(self.variants, square, True) - self._failures_in(every, square, False)
        for variant in every:
            if variant in self.variants:
                continue
            on_lanes = {n: self.places.get((variant, lane)) for n, lane in enumerate(square.lanes)}
            states = {own[image] for lane, image in bad if (own := on_lanes[lane]) is not None}
            is_apart = True in states and not is_failure  # failures that began apart may still be one
            is_seen = is_failure and not new.isdisjoint(self._failures_in([variant], square, True))
            (good if False in states else otherwise if is_apart else having if is_seen else unknown).append(variant)
        return having, good, unknown, otherwise

    def _failures_in(self, variants: Sequence[Variant], square: Square, state: bool) -> set[FailureName]:
        """Return the failures of these variants in the versions that have this state on a lane."""
        rows = ((square.lanes.index(lane), own) for (each, lane), own in self.of.failures.items() if each in variants)
        return {name for lane, own in rows for at in square.images_of(lane, state) for name in own[at]}

    def _not_planned(self) -> Iterator[Lane]:
        """Yield a lane for each host of the matrix that this run left out."""
        planned = {row.lane.host.name for row in self.of.rows}
        allowed = self.variants[0].scenario.hosts
        for host in self.plan.matrix.hosts:
            if host.name not in planned and host.name in (allowed or (host.name,)):
                yield Lane(host=host)

    def _controls(self, lanes: Sequence[Lane], versions: Collection[str]) -> Iterator[str]:
        """Yield the scenarios of the series that are good in every cell on all these lanes, have no finding there, and
        ran each variant in at least one of the bad `versions`. Findings matter because a cell that is good by itself
        may still be worse than the one before.
        """
        series = self.of.rows[0].series.name
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
        known = [entry for cell in row.cells if (entry := self.of.known.get(cell.id)) is not None]
        ran = [entry for entry in known if entry.verdict.verdict not in ("untested", "incompatible")]
        failed = any(entry.problem and entry.cell.image.version in versions for entry in known)
        seen = any(entry.cell.image.version in versions for entry in ran)
        return seen and not failed and all(self._is_good(entry.verdict) for entry in ran)

    def _is_good(self, verdict: CellVerdict) -> bool:
        """Return whether a cell is good, and was judged for this fault's signal in enough launches."""
        metric = metric_of(self.of.sign)
        signal = verdict.signals.get(metric)
        looked = not verdict.signals or (signal is not None and signal.seen == "good")
        is_small = signal_of(metric).kind == "growth" and verdict.grows_slowly(metric)
        return verdict.verdict in GOOD and not verdict.provisional and looked and not is_small

    def _answer(self, square: Square) -> SquareAnswer:
        """Return the cause, which is no card, host or software alone while older images passed launches there, too few
        to rule out a failure: an image may have brought it."""
        result = answer(square)
        if self.of.sign != "outcome" or result.cause not in ("gpu", "host", "software"):
            return result
        passed = [place for lane in sorted(result.bad) for place in self._passed_before(square, lane)]
        return replace(result, cause="undecided", doubt="lane or both", wanted=tuple(passed)) if passed else result

    def _passed_before(self, square: Square, lane: int) -> Iterator[SquareCell]:
        """Yield the images before the oldest bad one of a lane that are unknown there and passed launches, the nearest
        first."""
        for image in reversed(range(square.images_of(lane, True)[0])):
            cell = self._cell(square, (lane, image))
            entry = None if cell is None else self.of.known.get(cell.id)
            if entry is not None and entry.verdict.verdict in GOOD and entry.verdict.trials >= AGREE:
                yield lane, image

    def _missing(self, square: Square, result: SquareAnswer) -> tuple[Cell, ...]:
        """Return the cell that would best settle the cause, if there is one. Cells that were launched but are undecided
        come after cells that were not launched, and cells that the matrix excludes come last. An image that turned bad
        on one lane is at fault, so it is only asked for on another where it passed launches, too few to clear it.
        """
        cells = [cell for place in result.wanted if (cell := self._cell(square, place)) is not None]
        launched = {name for name, entry in self.of.known.items() if entry.verdict.trials >= AGREE}
        if result.cause == "image":
            if not is_told_alone(metric_of(self.of.sign)):
                return ()
            most, tried = self.plan.trials.most, {name: self.of.known[name].verdict for name in launched}
            able = {name for name, each in tried.items() if each.verdict in GOOD and each.trials < most}
            cells = [cell for cell in cells if cell.id in able]
        return tuple(sorted(cells, key=lambda cell: (cell.excluded is not None, cell.id in launched))[:1])

    def _cell(self, square: Square, place: SquareCell) -> Cell | None:
        """Return the cell at a position of the square, for the first bad variant. None if it can never run, or if its
        state is known, for example because another fault hides this one.
        """
        lane, image = place
        rows = {row.variant: row for row in self.of.rows if row.lane == square.lanes[lane]}
        variant = next((variant for variant in self.variants if variant in rows), None)
        if variant is None or self.of.states[variant, square.lanes[lane]][image] is not None:
            return None
        cell = rows[variant].cells[image]
        entry, needs_install = self.of.known.get(cell.id), cell.lane.host.can.makes_environments
        is_incompatible = entry is not None and entry.verdict.verdict == "incompatible"
        return None if is_incompatible or (needs_install and not isinstance(cell.image.source, Install)) else cell
