"""Attributes a fault to the image or the lane by a two-factor design: a table of states, images × lanes. Pure.

The image is the cause if one lane is good with one image and bad with another; the lane, if one image is good on one
lane and bad on another; an interaction, if both hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from harness.model import Cause, Doubt, Lane
from harness.model.judged import State

SquareCell = tuple[int, int]
"""(lane, image), as positions in a square."""


@dataclass(frozen=True, kw_only=True)
class Square:
    """The table of states: `states[lane][image]`, images oldest first. `software`: what is known of the machine of each
    lane, such as `{"driver": "580.65.06", "kernel": "6.8.0"}`.
    """

    lanes: Sequence[Lane]
    states: Sequence[Sequence[State]]
    software: Sequence[Mapping[str, str]] = ()

    def lanes_at(self, image: int, state: bool) -> set[int]:
        """Return the lanes on which an image has this state."""
        return {lane for lane, row in enumerate(self.states) if row[image] is state}

    def images_of(self, lane: int, state: State) -> list[int]:
        """Return the images that have this state on a lane, oldest first."""
        return [image for image, own in enumerate(self.states[lane]) if own is state]

    @property
    def images(self) -> range:
        return range(len(self.states[0]))

    def with_any(self, state: bool) -> set[int]:
        """Return the lanes on which any image has this state."""
        return {lane for lane, row in enumerate(self.states) if state in row}

    def software_of(self, bad: Set[int], good: Set[int]) -> tuple[str, ...]:
        """Return the software that all of these bad lanes have and no good one, such as `driver 580.65.06`. Unknown
        software of a lane separates nothing."""
        names = dict.fromkeys(name for own in self.software for name in own)
        sides = {name: [{self.software[lane].get(name) for lane in lanes} for lanes in (bad, good)] for name in names}
        return tuple(
            f"{name} {next(iter(ours))}"
            for name, (ours, theirs) in sides.items()
            if len(ours) == 1 and theirs and None not in ours | theirs and not ours & theirs
        )


@dataclass(frozen=True, kw_only=True)
class SquareAnswer:
    """The cause; `bad`, `good`, `cleared`: lane positions as in an Attribution; `wanted`: cells to run, best first."""

    cause: Cause
    bad: Set[int]
    good: Set[int] = frozenset()
    cleared: Set[int] = frozenset()
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


# ---------------------------------------------------------------- no image is good on one lane and bad on another


def _where_lanes_agree(square: Square) -> SquareAnswer:
    bad = square.with_any(True)
    turned = bad & square.with_any(False)
    if turned:
        proven = _reached(square, turned)
        others = set(range(len(square.lanes))) - proven
        wanted = tuple(_bad_images_on(square, proven, others))
        return SquareAnswer(cause="image", bad=proven, cleared=proven - turned, wanted=wanted)
    good = square.with_any(False)
    for lanes in (square.lanes_at(image, True) for image in square.images if good):
        kinds = {model_of(square.lanes[lane]) or f"host {square.lanes[lane].host.name}" for lane in lanes}
        if len(kinds) > 1 and len({square.lanes[lane].host for lane in lanes}) > 1:  # neither can be what they share
            return SquareAnswer(cause="image", bad=lanes, cleared=lanes)
    if good:
        wanted = (*_bad_images_on(square, bad, good), *_good_images_on(square, bad, good))
        return SquareAnswer(cause="undecided", bad=bad, doubt="image or lane", wanted=wanted)
    others = set(range(len(square.lanes))) - bad
    wanted = (*_neighbours_on(square, bad), *_bad_images_on(square, bad, others))
    return SquareAnswer(cause="undecided", bad=bad, doubt="nothing good", wanted=wanted)


def _reached(square: Square, turned: set[int]) -> set[int]:
    """Return the closure of `turned`, the lanes that the image alone turned bad, over shared bad images."""
    reached = set(turned)
    while True:
        images = {image for lane in reached for image in square.images_of(lane, True)}
        more = reached | {lane for image in images for lane in square.lanes_at(image, True)}
        if more == reached:
            return reached
        reached = more


def _bad_images_on(square: Square, bad: set[int], others: set[int]) -> Iterator[SquareCell]:
    images = dict.fromkeys(image for lane in sorted(bad) for image in square.images_of(lane, True))
    return ((other, image) for image in images for other in sorted(others) if square.states[other][image] is None)


def _good_images_on(square: Square, bad: set[int], good: set[int]) -> Iterator[SquareCell]:
    """Yield unknown cells of good images on bad lanes. The newest image, the nearest to the bad ones, comes first."""
    images = {image for lane in good for image in square.images_of(lane, False)}
    return (
        (lane, image)
        for image in sorted(images, reverse=True)
        for lane in sorted(bad)
        if square.states[lane][image] is None
    )


def _neighbours_on(square: Square, lanes: set[int]) -> Iterator[SquareCell]:
    """Yield the unknown cells of each lane: first those older than its oldest bad image, nearest first."""
    for lane in sorted(lanes):
        oldest = square.images_of(lane, True)[0]
        unknown = square.images_of(lane, None)
        yield from ((lane, image) for image in reversed(unknown) if image < oldest)
        yield from ((lane, image) for image in unknown if image > oldest)


# ---------------------------------------------------------------- an image is good on one lane and bad on another


def _where_lanes_differ(square: Square, split: Sequence[int]) -> SquareAnswer:
    bad = square.with_any(True)
    turned = bad & square.with_any(False)
    clean = {lane for image in split for lane in square.lanes_at(image, False)} - bad
    if not clean:
        return _bad_everywhere_in_the_end(square, bad, turned)
    # If another bad lane is bad with an image that is still good on a turned one, the turned one has another fault.
    early = {image for lane in turned for image in square.images_of(lane, False)}
    if turned and not any(early & set(square.images_of(lane, True)) for lane in bad - turned):
        return SquareAnswer(cause="interaction", bad=bad, good=clean)
    cause = None if turned else _what_of_lanes(square, bad, clean)
    if cause is not None:
        return SquareAnswer(cause=cause, bad=bad, good=clean)
    return SquareAnswer(
        cause="undecided",
        bad=bad,
        good=clean,
        apart=bool(turned),
        doubt="lane or both",
        wanted=tuple(_neighbours_on(square, bad - turned)),
    )


def _bad_everywhere_in_the_end(square: Square, bad: set[int], turned: set[int]) -> SquareAnswer:
    """Judge lanes that became bad at different versions. If no version is bad on all lanes, image and lane interact."""
    if bad == turned and any(square.lanes_at(image, True) == bad for image in square.images):
        return SquareAnswer(cause="image", bad=bad, apart=True)
    open_images = [image for image in square.images if not bad & square.lanes_at(image, False)]
    if bad == turned and not open_images:
        return SquareAnswer(cause="interaction", bad=bad, apart=True)
    missing = [(lane, image) for image in open_images for lane in sorted(bad) if square.states[lane][image] is None]
    return SquareAnswer(
        cause="undecided",
        bad=bad,
        apart=True,
        doubt="image or lane",
        wanted=(*missing, *_neighbours_on(square, bad - turned)),
    )


def _what_of_lanes(square: Square, bad: set[int], clean: set[int]) -> Cause | None:
    """Return what the bad lanes have in common and no clean one has, as simply as possible. "software" if that is the
    driver or the kernel of machines with neither one host nor one GPU model in common; "host" if they have no GPU, or
    if their GPU model is good on another host; otherwise "gpu". None if this differs between hosts, or if what is
    suspected is bad with a single image, which may be the cause.
    """
    least = min(2, len(square.images))
    hosts_of, models = ({key(square.lanes[lane]) for lane in bad} for key in (lambda lane: lane.host, model_of))
    is_one_card = len(models) == 1 and not any(model_of(square.lanes[lane]) in models for lane in clean)
    if len(hosts_of) > 1 and not is_one_card and square.software_of(bad, clean):
        return "software" if len({image for lane in bad for image in square.images_of(lane, True)}) >= least else None
    lanes, good = ([square.lanes[lane] for lane in chosen] for chosen in (bad, clean))
    hosts = {
        lane.host
        for lane in lanes
        if lane.gpu is None or any(model_of(other) == model_of(lane) and other.host != lane.host for other in good)
    }
    if hosts and hosts != {lane.host for lane in lanes}:
        return None
    tried: dict[object, set[int]] = {}
    for lane in bad:
        blamed = square.lanes[lane].host if hosts else model_of(square.lanes[lane])
        tried.setdefault(blamed, set()).update(square.images_of(lane, True))
    if any(len(images) < least for images in tried.values()):
        return None
    return "host" if hosts else "gpu"
