"""Tracks each lane while it runs: the number of trials, the growth rate so far, and the remaining time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness import amounts
from harness.model.watching import EndedTrial

_LEAST_STEPS = 200
_LEAST_SAMPLES = 6


@dataclass(kw_only=True)
class Activity:
    """The work of one thread in a lane: preparing an image (`steps` is 0) or running a trial of at most `steps` steps.

    `samples` are pairs of step and resident memory in KiB.
    """

    text: str = ""
    steps: int = 0
    step: int = 0
    samples: list[tuple[int, float]] = field(default_factory=list)

    def rate_kib_per_step(self) -> float | None:
        """Return the growth rate over the second half of the steps so far; None with too few steps or samples."""
        late = [sample for sample in self.samples if sample[0] >= self.step / 2]
        if self.step < _LEAST_STEPS or len(late) < _LEAST_SAMPLES:
            return None
        (first_step, first_kib), (last_step, last_kib) = late[0], late[-1]
        return None if last_step <= first_step else (last_kib - first_kib) / (last_step - first_step)


@dataclass(kw_only=True)
class LaneState:
    """The progress of one lane.

    `ran` counts the trials of this run; `done` also counts reused trials of earlier runs, and is at most `most`.
    `about` is the expected number of trials, 0 if unknown. Each thread that works in the lane has an activity.
    `elapsed_s` returns the seconds since the run began, `began_s` of which passed before the first trial: the lane may
    have waited for its host.
    """

    elapsed_s: Callable[[], float]
    most: int = 0
    exact: bool = True
    about: int = 0
    done: int = 0
    ran: int = 0
    began_s: float | None = None
    activities: dict[int, Activity] = field(default_factory=dict)

    def plan(self, *, most: int, exact: bool, about: int) -> None:
        self.most, self.exact, self.about, self.done, self.ran = most, exact, about, 0, 0

    @property
    def count(self) -> str:
        """Return `12/30`, or `launch 12, about 30, at most 40` if the number of launches is not known in advance."""
        if not self.most or self.exact:
            return f"{self.done}/{self.most}" if self.most else ""
        likely = f"about {self.about:,}, " if self.done < self.about < self.most else ""
        return f"launch {self.done}, {likely}at most {self.most:,}"

    @property
    def newest(self) -> Activity:
        """Return the activity that began last and has not ended."""
        return next(reversed(self.activities.values()), Activity())

    @property
    def activity(self) -> str:
        """Return a text on what the lane is doing: its running trials, or what it prepares for one."""
        trials = [activity.text for activity in self.activities.values() if activity.steps]
        if len(trials) > 1:
            return f"{len(trials)} side by side: {', '.join(trials)}"
        return trials[0] if trials else self.newest.text

    def begin_trial(self, activity: str, *, steps: int) -> None:
        """Begin a trial in this thread, or the preparation of a trial (`steps` is 0)."""
        self.activities.pop(threading.get_ident(), None)
        if steps and self.began_s is None:
            self.began_s = self.elapsed_s()
        trials = {key: activity for key, activity in self.activities.items() if activity.steps}
        self.activities = {**trials, threading.get_ident(): Activity(text=activity, steps=steps)}

    def sample(self, step: int, rss_kib: float | None) -> None:
        own = self.activities.setdefault(threading.get_ident(), Activity())
        own.step = step
        if rss_kib is not None:
            own.samples.append((step, rss_kib))

    def end_trial(self, *, reused: bool, replicate: bool) -> None:
        """End a trial's activity and count the trial, unless it is an A/A `replicate`, which is not planned."""
        self.done += not replicate
        self.ran += not (reused or replicate)
        self.most = max(self.most, self.done)
        self.activities.pop(threading.get_ident(), None)

    def left_s(self) -> float | None:
        """Return the remaining time for `most` trials, in seconds, at the rate so far; None before the first trial of
        this run has ended, and after the last.
        """
        if self.ran == 0 or self.done >= self.most:
            return None
        return self._trial_s() * (self.most - self.done)

    @property
    def left(self) -> str:
        """Return `about 1 min left, ≤ 3 min`; "" if nothing is known."""
        left_s, about_s = self.left_s(), self.about_left_s()
        if left_s is None:
            return ""
        if about_s is not None:
            return f"about {amounts.duration(about_s)} left, ≤ {amounts.duration(left_s)}"
        return f"{'' if self.exact else '≤ '}{amounts.duration(left_s)} left"

    def about_left_s(self) -> float | None:
        """Return the expected remaining time for `about` trials, in seconds; None if the number of launches is exact
        or cannot be predicted.
        """
        if self.exact or self.ran == 0 or not self.done < self.about < self.most:
            return None
        return self._trial_s() * (self.about - self.done)

    def _trial_s(self) -> float:
        return (self.elapsed_s() - (self.began_s or 0.0)) / self.ran


class LanesProgress:
    """The lanes of a run, for every kind of progress display. Hold `_lock` to read or change them."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._lock = threading.RLock()
        self._lanes: dict[str, LaneState] = {}
        self._told: dict[str, bool] = {}
        """Whether each cell's last launch that was told was bad."""
        began_s = clock()
        self._elapsed_s: Callable[[], float] = lambda: clock() - began_s

    def plan(self, *, most: Mapping[str, int], exact: bool, about: Mapping[str, int]) -> None:
        with self._lock:
            for lane, number in most.items():
                self._lane(lane).plan(most=number, exact=exact, about=about.get(lane, 0))

    def trial_started(self, *, lane: str, cell: str, number: int, steps: int) -> None:
        with self._lock:  # the line already shows the lane
            self._lane(lane).begin_trial(f"{cell.replace(f' on {lane}:', ':')} #{number}", steps=steps)

    def _end(self, trial: EndedTrial) -> bool:
        """End a trial in this thread. Return whether it is news: the first of its cell in this run, or one that ends
        otherwise than those before."""
        self._lane(trial.lane).end_trial(reused=trial.reused, replicate=trial.replicate)
        if trial.reused or trial.replicate:
            return False
        cell = f"{trial.lane} {trial.cell}"
        before = self._told.get(cell)
        self._told[cell] = bool(before if trial.bad is None else trial.bad)
        return before is not self._told[cell]

    def _lane(self, name: str) -> LaneState:
        return self._lanes.setdefault(name, LaneState(elapsed_s=self._elapsed_s))
