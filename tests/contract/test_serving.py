"""A server on every engine: the agent starts it beside the harness's own client, and nothing of both is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.players.launched import served
from tests.players.world import World

SERVER = Path(__file__).parents[1] / "agent" / "server.py"


@pytest.mark.parametrize(("fault", "end"), [("", "completed"), ("dies", "crash"), ("redirects", "setup")])
def test_a_server_is_measured_wherever_it_runs(
    world: World, remaining: Callable[[World], list[str]], fault: str, end: str
) -> None:
    trial = served(world, fault)
    assert trial.end == end, trial.message
    assert trial.last_step in {"": (100,), "dies": range(36, 60), "redirects": (0,)}[fault]
    assert remaining(world) == []
