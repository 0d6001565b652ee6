"""Attributes faults to the image, the GPU, the host or an interaction, and to params. Pure.

The cause follows from a two-factor design, a table of states, images × lanes: it is the image if one lane is good with
one image and bad with another; the lane, if one image is good on one lane and bad on another; an interaction, if both
hold. The params follow from the smallest rule (`param_rules`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from harness.judge.attribution.group_faults import Fault, alike, faults_of, states_of
from harness.judge.attribution.param_rules import find_rule
from harness.judge.attribution.row_states import LaneOfVariant, RowStates, SignInRows, metric_of, signs
from harness.judge.comparable import software
from harness.judge.history.transitions import FailureName
from harness.judge.launches import AGREE
from harness.model import (
    GOOD,
    UNSETTLING,
    Attribution,
    Build,
    Cause,
    Cell,
    CellResult,
    CellVerdict,
    Doubt,
    Finding,
    Lane,
    Observation,
    Plan,
    Pull,
    Variant,
    VersionRow,
    grouped,
    signal_of,
)
from harness.model.judged import UNMEASURED, State
from harness.model.signals import is_told_alone


def attribute(
    plan: Plan, cells: Iterable[CellResult], findings: Sequence[Finding], observations: Iterable[Observation] = ()
) -> tuple[Attribution, ...]:
    """Return the attribution of each fault, in the plan's order and, for each metric, the oldest fault first.

    A fault is an episode, merged over lanes and variants by `group_faults.py`, and has its own rule of params.
    Consequences of other findings are not faults.
    """
    known = {entry.cell.id: entry for entry in cells}
    worse: list[Finding | Observation] = [*findings]
    worse += (each for each in observations if each.signal in UNSETTLING)
    attributions = []
    rows_of = grouped(((row.series.name, row.variant.scenario.name), row) for row in plan.rows)
    for (series, scenario), rows in rows_of.items():
        own = [finding for finding in findings if (finding.series, finding.variant.scenario.name) == (series, scenario)]
        places = {(row.variant, row.lane): row for row in rows}
        for sign in signs(own):
            of = SignInRows(rows=places, known=known, findings=own, sign=sign)
            groups = (_Group(plan=plan, worse=worse, of=of, faults=faults) for faults in alike(_faults(of)))
            attributions += [group.attribution() for group in groups]
    return tuple(attributions)


def _faults(of: SignInRows) -> list[Fault]:
    """Return the faults of each variant."""
    found = [
        fault
        for variant, own in grouped(of.rows).items()
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
    `worse`: the findings of the run, and what makes its versions not simply good.
    """

    plan: Plan
    worse: Sequence[Finding | Observation]
    of: SignInRows
    faults: Sequence[Fault]

    @cached_property
    def variants(self) -> list[Variant]:
        """Return the variants with this fault, in the plan's order."""
        having = {fault.variant for fault in self.faults}
        return [variant for variant in self.of.variants if variant in having]

    @cached_property
    def places(self) -> dict[LaneOfVariant, RowStates]:
        """Return the states by variant and lane: in variants with this fault, those for this fault alone."""
        beside = self.of.states_beside(each for fault in self.faults for each in fault.findings)
        own = {(fault.variant, lane): episodes for fault in self.faults for lane, episodes in fault.episodes.items()}
        return {
            place: states_of(own.get(place, ()), states) if place[0] in self.variants else states
            for place, states in beside.items()
        }

    @cached_property
    def square(self) -> Square:
        """Return the states of the variants with this fault, which do not contradict each other, as one square."""
        states = grouped((lane, own) for (variant, lane), own in self.places.items() if variant in self.variants)
        unknown = [None] * len(self.of.order)
        known = {
            lane: [next((state for state in column if state is not None), None) for column in zip(*own, strict=True)]
            for lane, own in states.items()
        }
        lanes = dict.fromkeys(lane for _, lane in self.of.rows)
        return Square(
            states={lane: known.get(lane, unknown) for lane in lanes},
            software={lane: self._software(lane) for lane in lanes},
        )

    @cached_property
    def answer(self) -> SquareAnswer:
        """Return the cause, which is no card, host or software alone while older images passed launches there, too few
        to rule out a failure: an image may have brought it."""
        found = answer(self.square)
        if self.of.sign != "outcome" or found.cause not in ("gpu", "host", "software"):
            return found
        passed = [place for lane in self.square.among(found.bad) for place in self._passed_before(lane)]
        return replace(found, cause="undecided", doubt="lane or both", wanted=tuple(passed)) if passed else found

    def attribution(self) -> Attribution:
        square, found = self.square, self.answer
        bad, good, unknown, otherwise = self._sides()
        asked = len(self.of.variants)
        rule = find_rule(bad, good, unknown, otherwise=otherwise) if asked > 1 else None
        bad_lanes = square.among(found.bad)
        images = tuple(version for version, image in self.of.order.items() if square.lanes_at(image, True))
        episodes = {fault.variant: fault.episodes for fault in self.faults}
        having = self._cells({place: own for place, own in self.places.items() if place[0] in self.variants}, True)
        layers = {cell.verdict.layer for cell in having if self.of.sign == "memory"}
        return Attribution(
            series=self.of.series,
            scenario=self.variants[0].scenario.name,
            metric=metric_of(self.of.sign),
            cause=found.cause,
            variants=tuple(self.variants),
            episodes=tuple(
                each for variant in self.variants for lane in bad_lanes for each in episodes[variant].get(lane, ())
            ),
            bad_lanes=bad_lanes,
            good_lanes=square.among(found.good),
            open_lanes=(*square.among(square.states.keys() - found.bad - found.good), *self._not_planned()),
            cleared=square.among(found.cleared),
            images=images,
            apart=found.apart,
            alike=len(set(map(model_of, bad_lanes))) == 1,
            doubt=found.doubt,
            rule=rule,
            unruly=asked > 1 and rule is None,
            layer=layers.pop() if len(layers) == 1 else None,  # on which all bad cells agree
            controls=tuple(self._controls(bad_lanes, images)),
            missing=self._missing(),
            machines=tuple(dict.fromkeys(cell.machine for cell in having if cell.machine)),
            suspect=self._suspect(),
            software=square.software_of(found.bad, found.good),
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

    def _software(self, lane: Lane) -> dict[str, str]:
        """Return the software of a lane's machine, as its GPUs and launches report them."""
        cells = [cell for place, own in self.of.cells.items() if place[1] == lane for cell in own if cell is not None]
        return software(lane.gpus, (trial.fingerprint for cell in cells for trial in cell.trials))

    def _sides(self) -> tuple[list[Variant], list[Variant], list[Variant], list[Variant]]:
        """Return the variants that have this fault or show it beside another failure, those that are good where these
        are bad, those that are unknown there, and those with another fault.
        """
        having, good, unknown, otherwise = list(self.variants), list[Variant](), list[Variant](), list[Variant]()
        is_failure = self.of.sign == "outcome"
        # The failures of the versions with this fault that no variant has in the versions without it.
        new = self._failures_in(self.variants, True) - self._failures_in(self.of.variants, False)
        for variant in self.of.variants:
            if variant in self.variants:
                continue
            states = {
                self.places[variant, lane][image] for lane, image in self.square.bad if (variant, lane) in self.places
            }
            is_apart = True in states and not is_failure  # failures that began apart may still be one
            is_seen = is_failure and not new.isdisjoint(self._failures_in([variant], True))
            (good if False in states else otherwise if is_apart else having if is_seen else unknown).append(variant)
        return having, good, unknown, otherwise

    def _failures_in(self, variants: Sequence[Variant], state: bool) -> set[FailureName]:
        """Return the failures of these variants in the versions that have this state on a lane."""
        rows = ((lane, own) for (each, lane), own in self.of.failures.items() if each in variants)
        return {name for lane, own in rows for at in self.square.images_of(lane, state) for name in own[at]}

    def _not_planned(self) -> Iterator[Lane]:
        """Yield a lane for each host of the matrix that this run left out."""
        planned = {lane.host.name for lane in self.square.states}
        allowed = self.variants[0].scenario.hosts
        for host in self.plan.matrix.hosts:
            if host.name not in planned and host.name in (allowed or (host.name,)):
                yield Lane(host=host)

    def _controls(self, lanes: Sequence[Lane], versions: Collection[str]) -> Iterator[str]:
        """Yield the scenarios of the series that are good in every cell on all these lanes, have no finding and
        nothing to look at there, and ran each variant in at least one of the bad `versions`. Findings matter because a
        cell that is good by itself may still be worse than the one before.
        """
        worse = {one.variant.scenario.name for one in self.worse if one.lane in lanes}
        others = grouped(
            (row.variant.scenario.name, row)
            for row in self.plan.rows
            if row.series.name == self.of.series and row.lane in lanes
        )
        for name, rows in others.items():
            everywhere = {row.lane for row in rows} == set(lanes)
            if name not in worse and everywhere and all(self._stays_good(row, versions) for row in rows):
                yield name

    def _stays_good(self, row: VersionRow, versions: Collection[str]) -> bool:
        """Return whether every cell that could run is good in this fault's signal, including one of these versions."""
        known = [entry for cell in row.cells if (entry := self.of.known.get(cell.id)) is not None]
        ran = [entry for entry in known if entry.verdict.verdict not in UNMEASURED]
        seen = any(entry.cell.image.version in versions for entry in ran)
        return seen and all(self._is_good(entry.verdict) for entry in ran)

    def _is_good(self, verdict: CellVerdict) -> bool:
        """Return whether a cell is good, and was judged for this fault's signal in enough launches."""
        metric = metric_of(self.of.sign)
        signal = verdict.signals.get(metric)
        looked = not verdict.signals or (signal is not None and signal.seen == "good")
        is_small = signal_of(metric).kind == "growth" and verdict.grows_slowly(metric)
        return verdict.verdict in GOOD and not verdict.provisional and looked and not is_small

    def _passed_before(self, lane: Lane) -> Iterator[SquareCell]:
        """Yield the images before the oldest bad one of a lane that are unknown there and passed launches, the nearest
        first."""
        for image in reversed(range(self.square.images_of(lane, True)[0])):
            cell = self._cell((lane, image))
            entry = None if cell is None else self.of.known.get(cell.id)
            if entry is not None and entry.verdict.verdict in GOOD and entry.verdict.trials >= AGREE:
                yield lane, image

    def _missing(self) -> tuple[Cell, ...]:
        """Return the cell that would best settle the cause, if there is one. Cells that were launched but are undecided
        come after cells that were not launched, and cells that the matrix excludes come last. An image that turned bad
        on one lane is at fault, so it is only asked for on another where it passed launches, too few to clear it.
        """
        cells = [cell for place in self.answer.wanted if (cell := self._cell(place)) is not None]
        launched = {name for name, entry in self.of.known.items() if entry.verdict.trials >= AGREE}
        if self.answer.cause == "image":
            if not is_told_alone(metric_of(self.of.sign)):
                return ()
            most, tried = self.plan.trials.most, {name: self.of.known[name].verdict for name in launched}
            able = {name for name, each in tried.items() if each.verdict in GOOD and each.trials < most}
            cells = [cell for cell in cells if cell.id in able]
        return tuple(sorted(cells, key=lambda cell: (cell.excluded is not None, cell.id in launched))[:1])

    def _cell(self, place: SquareCell) -> Cell | None:
        """Return the cell at a position of the square, for the first bad variant. None if it can never run, or if its
        state is known, for example because another fault hides this one.
        """
        lane, image = place
        own = next(((variant, lane) for variant in self.variants if (variant, lane) in self.of.rows), None)
        if own is None or self.of.states[own][image] is not None:
            return None
        cell = self.of.rows[own].cells[image]
        entry, is_no_engine = self.of.known.get(cell.id), cell.lane.host.can.makes_environments
        is_incompatible = entry is not None and entry.verdict.verdict == "incompatible"
        return None if is_incompatible or (is_no_engine and isinstance(cell.image.source, Pull | Build)) else cell


# ---------------------------------------------------------------- images × lanes

SquareCell = tuple[Lane, int]
"""A lane, and an image by its position."""


@dataclass(frozen=True, kw_only=True)
class Square:
    """The table of states by lane, images oldest first. `software`: what is known of the machine of each lane, such as
    `{"driver": "580.65.06", "kernel": "6.8.0"}`.
    """

    states: Mapping[Lane, Sequence[State]]
    software: Mapping[Lane, Mapping[str, str]] = field(default_factory=dict)

    def among(self, lanes: Set[Lane]) -> tuple[Lane, ...]:
        """Return these lanes in their order."""
        return tuple(lane for lane in self.states if lane in lanes)

    def lanes_at(self, image: int, state: bool) -> set[Lane]:
        """Return the lanes on which an image has this state."""
        return {lane for lane, row in self.states.items() if row[image] is state}

    def images_of(self, lane: Lane, state: State) -> list[int]:
        """Return the images that have this state on a lane, oldest first."""
        return [image for image, own in enumerate(self.states[lane]) if own is state]

    @property
    def images(self) -> range:
        return range(len(next(iter(self.states.values()))))

    @property
    def bad(self) -> list[SquareCell]:
        """Return the cells that are bad."""
        return [(lane, image) for lane in self.states for image in self.images_of(lane, True)]

    def with_any(self, state: bool) -> set[Lane]:
        """Return the lanes on which any image has this state."""
        return {lane for lane, row in self.states.items() if state in row}

    def unknown(self, images: Iterable[int], lanes: Set[Lane]) -> tuple[SquareCell, ...]:
        """Return the unknown cells of these images on these lanes, image by image."""
        return tuple(
            (lane, image) for image in images for lane in self.among(lanes) if self.states[lane][image] is None
        )

    def unknown_beside(self, lanes: Set[Lane]) -> tuple[SquareCell, ...]:
        """Return the unknown cells of these lanes: on each, first those before its oldest bad image, nearest first."""
        oldest = {lane: self.images_of(lane, True)[0] for lane in self.among(lanes)}
        return tuple(
            (lane, image)
            for lane, first in oldest.items()
            for image in (*range(first - 1, -1, -1), *self.images[first:])
            if self.states[lane][image] is None
        )

    def software_of(self, bad: Set[Lane], good: Set[Lane]) -> tuple[str, ...]:
        """Return the software that all of these bad lanes have and no good one, such as `driver 580.65.06`. Unknown
        software of a lane separates nothing."""
        names = dict.fromkeys(name for own in self.software.values() for name in own)
        sides = {name: [{self.software[lane].get(name) for lane in lanes} for lanes in (bad, good)] for name in names}
        return tuple(
            f"{name} {next(iter(ours))}"
            for name, (ours, theirs) in sides.items()
            if len(ours) == 1 and theirs and None not in ours | theirs and not ours & theirs
        )


@dataclass(frozen=True, kw_only=True)
class SquareAnswer:
    """The cause; `bad`, `good`, `cleared`: lanes as in an Attribution; `wanted`: cells to run, best first."""

    cause: Cause
    bad: Set[Lane]
    good: Set[Lane] = frozenset()
    cleared: Set[Lane] = frozenset()
    apart: bool = False
    doubt: Doubt | None = None
    wanted: tuple[SquareCell, ...] = ()


def answer(square: Square) -> SquareAnswer:
    """Return the cause of the bad cells in a square; at least one cell must be bad."""
    split = [image for image in square.images if square.lanes_at(image, True) and square.lanes_at(image, False)]
    return _where_lanes_differ(square, split) if split else _where_lanes_agree(square)


def model_of(lane: Lane) -> str | None:
    """Return the GPU models of a lane, joined by " + ", because `all` differs between hosts; None without a GPU."""
    return " + ".join(sorted(gpu.short_name for gpu in lane.gpus)) or lane.gpu


def _where_lanes_agree(square: Square) -> SquareAnswer:
    """Judge a square in which no image is good on one lane and bad on another."""
    bad, good, every = square.with_any(True), square.with_any(False), set(square.states)
    if turned := bad & good:
        proven = _reached(square, turned)
        wanted = square.unknown(_bad_images(square, proven), every - proven)
        return SquareAnswer(cause="image", bad=proven, cleared=proven - turned, wanted=wanted)
    for lanes in (square.lanes_at(image, True) for image in square.images if good):
        kinds = {model_of(lane) or f"host {lane.host.name}" for lane in lanes}
        if len(kinds) > 1 and len({lane.host for lane in lanes}) > 1:  # neither can be what they share
            return SquareAnswer(cause="image", bad=lanes, cleared=lanes)
    bad_elsewhere = square.unknown(_bad_images(square, bad), good or every - bad)
    if good:
        fine = {image for lane in good for image in square.images_of(lane, False)}
        # The newest image, the nearest to the bad ones, comes first.
        wanted = (*bad_elsewhere, *square.unknown(sorted(fine, reverse=True), bad))
        return SquareAnswer(cause="undecided", bad=bad, doubt="image or lane", wanted=wanted)
    wanted = (*square.unknown_beside(bad), *bad_elsewhere)
    return SquareAnswer(cause="undecided", bad=bad, doubt="nothing good", wanted=wanted)


def _bad_images(square: Square, lanes: Set[Lane]) -> list[int]:
    """Return the images that are bad on any of these lanes, lane by lane."""
    return list(dict.fromkeys(image for lane, image in square.bad if lane in lanes))


def _reached(square: Square, turned: set[Lane]) -> set[Lane]:
    """Return the closure of `turned`, the lanes that the image alone turned bad, over shared bad images."""
    more = turned.union(*(square.lanes_at(image, True) for image in _bad_images(square, turned)))
    return turned if more == turned else _reached(square, more)


def _where_lanes_differ(square: Square, split: Sequence[int]) -> SquareAnswer:
    """Judge a square in which the images of `split` are good on one lane and bad on another."""
    bad = square.with_any(True)
    turned = bad & square.with_any(False)
    clean = {lane for image in split for lane in square.lanes_at(image, False)} - bad
    if not clean:
        return _bad_everywhere_in_the_end(square, bad, turned)
    # If another bad lane is bad with an image that is still good on a turned one, the turned one has another fault.
    early = {image for lane in turned for image in square.images_of(lane, False)}
    if turned and early.isdisjoint(_bad_images(square, bad - turned)):
        return SquareAnswer(cause="interaction", bad=bad, good=clean)
    cause = None if turned else _what_of_lanes(square, bad, clean)
    if cause is not None:
        return SquareAnswer(cause=cause, bad=bad, good=clean)
    wanted = square.unknown_beside(bad - turned)
    return SquareAnswer(cause="undecided", bad=bad, good=clean, apart=bool(turned), doubt="lane or both", wanted=wanted)


def _bad_everywhere_in_the_end(square: Square, bad: set[Lane], turned: set[Lane]) -> SquareAnswer:
    """Judge lanes that became bad at different versions. If no version is bad on all lanes, image and lane interact."""
    if bad == turned and any(square.lanes_at(image, True) == bad for image in square.images):
        return SquareAnswer(cause="image", bad=bad, apart=True)
    open_images = [image for image in square.images if not bad & square.lanes_at(image, False)]
    if bad == turned and not open_images:
        return SquareAnswer(cause="interaction", bad=bad, apart=True)
    wanted = (*square.unknown(open_images, bad), *square.unknown_beside(bad - turned))
    return SquareAnswer(cause="undecided", bad=bad, apart=True, doubt="image or lane", wanted=wanted)


def _what_of_lanes(square: Square, bad: set[Lane], clean: set[Lane]) -> Cause | None:
    """Return what the bad lanes have in common and no clean one has, as simply as possible. "software" if that is the
    software of machines with neither one host nor one GPU model in common; "host" if they have no GPU, or if their
    GPU model is good on another host; otherwise "gpu". None if this differs between hosts, or if what is
    suspected is bad with a single image, which may be the cause.
    """
    least = min(2, len(square.images))
    hosts, models = {lane.host for lane in bad}, set(map(model_of, bad))
    is_one_card = len(models) == 1 and models.isdisjoint(map(model_of, clean))
    if len(hosts) > 1 and not is_one_card and square.software_of(bad, clean):
        return "software" if len(_bad_images(square, bad)) >= least else None
    blamed = {
        lane.host
        for lane in bad
        if lane.gpu is None or any(model_of(other) == model_of(lane) and other.host != lane.host for other in clean)
    }
    if blamed and blamed != hosts:
        return None
    tried = grouped((lane.host if blamed else model_of(lane), image) for lane, image in square.bad)
    if any(len(set(images)) < least for images in tried.values()):
        return None
    return "host" if blamed else "gpu"
