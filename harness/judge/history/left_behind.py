"""Tells a version that fails from what remains between launches: a cache that one version writes and others cannot
read, a full disk, a changed machine. Then launches end well up to a moment, and fail from it on, whatever their
version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from harness.judge.history.flaky import MISS
from harness.judge.launches import AGREE
from harness.model import FAILURES, Trial

SHARED = 0.2
"""Largest probability of this order by chance, given how many launches fail, where launches share the user's folder and
home, so that something easily remains."""
APART = MISS
"""The same where each launch begins anew."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When launches of the versions at the places `broken` began to fail: after the launch `last`, of the version at
    `place`."""

    last: Trial
    place: int
    broken: tuple[int, ...]

    def before(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        """Return the launches without those that failed from this moment on."""
        return tuple(trial for trial in trials if trial.end not in FAILURES)


def began_to_fail(launches: Sequence[Sequence[Trial]], *, share: bool) -> Moment | None:
    """Return the moment from which all launches of two or more versions failed that ended well before; None if there is
    none. Of versions that share nothing, two must have ended well."""
    order = sorted(
        ((trial, place) for place, own in enumerate(launches) for trial in own if trial.measured and trial.started),
        key=lambda each: each[0].started,
    )
    first = next((at for at, (trial, _) in enumerate(order) if trial.end in FAILURES), 0)
    broken = {place for trial, place in order[first:] if trial.end in FAILURES}
    if (
        not first
        or len(broken) < AGREE
        or any(trial.end not in FAILURES for trial, place in order[first:] if place in broken)
    ):
        return None
    well = [place for _, place in order[:first] if place in broken]
    failed = sum(place in well for _, place in order[first:])
    if len(set(well)) < (1 if share else AGREE) or 1 / comb(len(well) + failed, failed) > (SHARED if share else APART):
        return None
    last, place = order[first - 1]
    return Moment(last=last, place=place, broken=tuple(sorted(broken)))
