"""What every engine guarantees for launches that take turns: one makes steps at a time, and nothing stays frozen."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count, pairwise

import numpy as np
import psutil
import pytest

from harness.errors import Interrupted
from harness.judge.comparison.round_tables import level_columns
from harness.model import Scenario, Steps, Trial, Variant
from harness.run.hosts.side_by_side import take_turns
from harness.run.trial.conversation import Conversation, Slice, Sliced
from harness.run.trial.payload import pack
from tests.players.world import STEPS, World, in_slices
from tests.waiting import until


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
    request = world.launch("orphan", value=seconds, slices=2)
    launch = Conversation(launch=request, key="key").run(world.engine)
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


PRINTS = "import time\nfor number in range({lines}):\n    print('step', number, flush=True)\n    time.sleep({pause_s})"


@pytest.mark.parametrize(
    ("programs", "steps"),
    [
        ([(3, 0.0), (3, 0.0)], [3, 3]),
        ([(1, 0.0), (60, 0.01)], [1, 60]),
        ([(2, 0.0), (5, 0.2), (40, 0.01)], [2, 5, 40]),
        ([(0, 0.0), (10, 0.01)], [0, 10]),
        ([(6, 0.3), (6, 0.3)], [6, 6]),
        ([(60, 0.0), (60, 0.0)], [60, 60]),
    ],
)
def test_short_programs_come_to_their_ends(local: World, programs: list[tuple[int, float]], steps: list[int]) -> None:
    """Fewer steps than a slice, longer steps than a slice, unequal numbers of steps, or none at all. Lines that were
    printed before a command stood still were lost: one of 60 lines counted one step."""
    kept: list[Trial] = []

    def launch(lines: int, pause_s: float) -> Sliced[None]:
        text = PRINTS.format(lines=lines, pause_s=pause_s)
        request = local.launch("quiet")
        scenario = Scenario(
            name="prints", where=request.scenario.where, command=("python3", "-c", text), step_pattern="step",
            steps=STEPS, timeout_s=30.0,
        )  # fmt: skip
        payload = pack(Variant(scenario=scenario), extras={"slices": len(programs)})
        own = replace(request, scenario=scenario, payload=payload, cell_id=str(lines))
        trial = yield from Conversation(launch=own, key="key").run(local.engine)
        kept.append(trial)

    launches = [partial(launch, *program) for program in programs]
    take_turns(launches, seconds=0.05, cycles=count(1), rng=random.Random(1))
    ended = {int(trial.cell_id): trial for trial in kept}
    assert len(kept) == len(programs)
    assert [ended[lines].last_step for lines, _ in programs] == steps
    assert {trial.end for trial in kept} <= {"completed", "setup"}, [trial.message for trial in kept]
    assert all(trial.end == "completed" for trial in kept if trial.last_step)
    figures = level_columns("step_time", [[trial] for trial in kept], steps=STEPS)
    assert all(value > 0 for column in figures.values() for value in column.values())
