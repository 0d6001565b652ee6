"""Launches side by side, if no times are compared: faster, with the same answers as one at a time."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import Any

import pytest

from tests.integration.conftest import DOCKER_AT_NIGHT, ROOT, Harness
from tests.integration.test_sweep import NO_LEVELS, causes, changes, planted

needs_two_processors = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor runs nothing side by side")
LOCKED = '''"""Fails if another launch is at work."""
import fcntl
import time


def setup():
    held = open({path!r}, "w")
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lambda: held.fileno() and time.sleep(0.002)
'''


def trials(harness: Harness) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in harness.trial_files()]


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


@needs_two_processors
def test_launches_that_disturb_each_other_accuse_no_version(harness: Harness) -> None:
    """Two launches that need the same port, file or lock fail side by side, and neither version is at fault."""
    script = harness.folder / "locked.py"
    script.write_text(LOCKED.format(path=str(harness.folder / "lock")))
    limits = NO_LEVELS.replace("}", ", setup: bad}")
    text = planted(engine="process", params="{}", limits=limits, steps="{first: 100, budget: 200}")
    matrix = harness.write(text.replace(f"{ROOT}/scenarios/planted.py", str(script)))
    ended = harness.run_here("sweep", matrix)
    found = trials(harness)
    assert any("alongside" in one["message"] for one in found), "two launches were to meet"
    assert {one["end"] for one in found} <= {"completed", "stopped", "infrastructure"}
    assert not harness.summary()["findings"], ended.out
    assert {cell["verdict"] for cell in harness.summary()["cells"]} <= {"flat", "plateau"}, ended.out


def test_one_at_a_time_is_a_word_in_the_matrix(harness: Harness) -> None:
    versions, params = '["1.15.0", "1.16.0"]', "{fault: none, work_us: 100}"
    text = planted(engine="process, parallel: false", params=params, versions=versions, limits=NO_LEVELS)
    assert harness.run_here("sweep", harness.write(text)).code == 0
    assert overlap(trials(harness)) == 0
    assert not any(one["conditions"]["beside"] for one in trials(harness))
