"""Launches that take turns in slices: as alone, and no version is accused of what launches do together."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from harness.model import LEVELS
from tests.integration.conftest import DOCKER_AT_NIGHT, ROOT, Harness
from tests.players.planted import NO_LEVELS, causes, changes, needs_two_processors, planted, trials

LOCKED = '''"""Fails if another launch is at work."""
import fcntl
import time


def setup():
    held = open({path!r}, "w")
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lambda: held.fileno() and time.sleep(0.002)
'''

ONLY_STEP_TIME = f"{{{', '.join(f'{name}: none' for name in (*LEVELS, 'shm') if name != 'step_time')}}}"


def test_later_rounds_take_turns_and_name_the_slower_version(harness: Harness) -> None:
    params = "{fault: slow, factor: 2.0, work_us: 500, since: 1.16.0}"
    harness.write(planted(engine="process", params=params, limits=ONLY_STEP_TIME))
    ended = harness.run_here("sweep", "matrix.yaml")
    assert changes(harness.summary()) == [("step_time", "first_bad", "1.15.0", "1.16.0")], ended.out
    found = trials(harness)
    assert {one["conditions"]["parked"] for one in found if one["round"] == 0} == {0}
    assert any(one["conditions"]["parked"] and "slice" in one["trace"]["columns"] for one in found)


def test_a_variable_lets_every_launch_run_alone(harness: Harness) -> None:
    harness.environ["HARNESS_SLICES"] = "off"
    harness.write(planted(engine="process", params="{fault: none, work_us: 500}", limits=ONLY_STEP_TIME))
    harness.run_here("sweep", "matrix.yaml", "--trials", "2")
    assert not any(one["conditions"]["parked"] for one in trials(harness))


@pytest.mark.parametrize("limits", [ONLY_STEP_TIME, pytest.param(NO_LEVELS, marks=needs_two_processors)])
def test_launches_that_cannot_be_alive_together_accuse_no_version(harness: Harness, limits: str) -> None:
    """In slices, or side by side, both need the same lock, as others need the same port: neither version is at fault,
    and both are measured.
    """
    script = harness.folder / "locked.py"
    script.write_text(LOCKED.format(path=str(harness.folder / "lock")))
    limits = limits.replace("}", ", setup: bad}")
    text = planted(engine="process", params="{}", limits=limits, steps="{first: 100, budget: 200}")
    harness.write(text.replace(f"{ROOT}/scenarios/planted.py", str(script)))
    ended = harness.run_here("sweep", "matrix.yaml")
    found = trials(harness)
    assert any("alongside" in one["message"] for one in found), "two launches were to meet"
    assert {one["end"] for one in found} <= {"completed", "stopped", "infrastructure"}
    assert not harness.summary()["findings"], ended.out
    assert {cell["verdict"] for cell in harness.summary()["cells"]} <= {"flat", "plateau"}, ended.out


# ---------------------------------------------------------------- side by side, if no times are compared


def overlap(found: list[dict[str, Any]]) -> int:
    """Return the number of launches that began while another launch ran."""
    spans = sorted((datetime.fromisoformat(one["started"]).timestamp(), one["duration_s"]) for one in found)
    return sum(
        begun_s < max(other_s + length_s for other_s, length_s in spans[:place])
        for place, (begun_s, _) in enumerate(spans)
        if place
    )


@needs_two_processors
@pytest.mark.parametrize("engine", DOCKER_AT_NIGHT)
def test_a_version_that_crashes_is_named_beside_others(harness: Harness, engine: str) -> None:
    """Half the time is no gain if the answer is different."""
    params = "{fault: [none, error], at: 20, work_us: 200, since: 1.15.0}"
    matrix = harness.write(planted(engine=engine, params=params, limits=NO_LEVELS))
    ended = harness.run_here("sweep", matrix)
    assert ended.code == 1, ended.err
    assert changes(harness.summary()) == [("outcome", "first_bad", "1.14.0", "1.15.0")]
    (finding,) = causes(harness.summary())
    assert finding["params"]["fault"] == "error"
    assert overlap(trials(harness)) > 0
    assert any(one["conditions"]["beside"] for one in trials(harness))


def test_one_at_a_time_is_a_word_in_the_matrix(harness: Harness) -> None:
    versions, params = '["1.15.0", "1.16.0"]', "{fault: none, work_us: 100}"
    text = planted(engine="process, parallel: false", params=params, versions=versions, limits=NO_LEVELS)
    assert harness.run_here("sweep", harness.write(text)).code == 0
    assert overlap(trials(harness)) == 0
    assert not any(one["conditions"]["beside"] for one in trials(harness))
