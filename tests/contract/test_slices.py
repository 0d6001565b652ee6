"""What every engine guarantees for launches that take turns: one makes steps at a time, and nothing stays frozen."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from functools import partial
from itertools import count, pairwise

import numpy as np
import psutil
import pytest

from harness.errors import Interrupted
from harness.model import Steps, Trial
from harness.run.hosts.slices import take_turns
from harness.run.trial.conversation import Slice, Sliced, trial_in_slices
from tests.contract.world import World
from tests.waiting import until

STEPS = Steps(first=60, budget=60)


def in_slices(
    world: World,
    kept: list[Trial],
    *acts: str,
    steps: Steps = STEPS,
    on_step: Callable[[int, float | None], None] = lambda step, kib: None,
) -> None:
    """Launch these acts of faults.py together, and keep the trials."""

    def launch(act: str) -> Sliced[None]:
        request = world.launch(act, steps=steps, slices=len(acts))
        kept.append((yield from trial_in_slices(world.engine, request, cell_id="cell", on_step=on_step)))

    take_turns([partial(launch, act) for act in acts], seconds=0.1, cycles=count(1), rng=random.Random(1))


def test_one_launch_makes_steps_at_a_time(world: World) -> None:
    kept: list[Trial] = []
    in_slices(world, kept, "clock", "clock")
    assert [(trial.end, trial.last_step) for trial in kept] == [("completed", 60)] * 2
    slices = []
    for number, trial in enumerate(kept):
        assert trial.trace is not None
        cycles, at_s = trial.trace.columns["slice"], trial.trace.columns["at_s"]
        slices += [
            (at_s[cycles == cycle].min(), at_s[cycles == cycle].max(), number)
            for cycle in np.unique(cycles[np.isfinite(cycles)])
        ]
    slices.sort()
    assert len(slices) > 6
    assert all(before[1] < after[0] for before, after in pairwise(slices))


def test_a_launch_that_fails_in_its_slice_ends_alone(world: World) -> None:
    kept: list[Trial] = []
    in_slices(world, kept, "raise", "clock")
    assert sorted(trial.end for trial in kept) == ["completed", "crash"]


def test_nothing_stays_frozen_when_the_agent_is_killed(world: World, remaining: Callable[[World], list[str]]) -> None:
    """A process in a session of its own stood still for ever: only the agent knew of it."""
    seconds = f"8{secrets.randbelow(10**8):08}"
    launch = trial_in_slices(
        world.engine, world.launch("orphan", value=seconds, slices=2), cell_id="cell", number=1, key="key", round=0,
        decide=lambda trace: "go", on_step=lambda step, kib: None, cancelled=lambda: False,
    )  # fmt: skip
    next(launch)
    (orphan,) = [each for each in psutil.process_iter(["cmdline"]) if seconds in (each.info["cmdline"] or ())]
    assert until(lambda: orphan.status() == psutil.STATUS_STOPPED, seconds=10)
    scenario = orphan.parent()
    agent = scenario and scenario.parent()
    assert agent is not None
    agent.kill()
    with pytest.raises(StopIteration) as ended:
        launch.send(Slice(cycle=1, seconds=0.1))
    assert ended.value.value.end == "infrastructure"
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    assert remaining(world) == []


def test_nothing_is_left_of_launches_that_were_frozen_when_the_sweep_ended(
    world: World, remaining: Callable[[World], list[str]]
) -> None:
    def end(step: int, rss_kib: float | None) -> None:
        raise Interrupted("interrupted")

    with pytest.raises(Interrupted):
        in_slices(world, [], "slow", "slow", steps=Steps(first=500, budget=500), on_step=end)
    assert remaining(world) == []
