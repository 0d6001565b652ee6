"""Launches side by side, if no times are compared: faster, with the same answers as one at a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.integration.conftest import DOCKER_AT_NIGHT, Harness
from tests.players.planted import NO_LEVELS, causes, changes, needs_two_processors, planted, trials


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
