"""A server on every engine: the agent starts it beside the harness's own client, and nothing of both is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.model import Prepared, Scenario, Steps, Trial, Variant
from harness.model.servers import Request, WhenReady
from harness.run.trial.payload import pack
from tests.contract.world import WHERE, World

SERVER = Path(__file__).parents[1] / "agent" / "server.py"


def served(world: World, fault: str = "", *, prepared: Prepared | None = None, **fields: Any) -> Trial:
    """Run a trial of a server, with a fault."""
    words = ("python3", "server.py", "{port}", *([fault] if fault else []))
    given = {"request": (Request(get="/x"),), "ready": WhenReady(http="/"), **fields}
    scenario = Scenario(
        name="served", where=WHERE, serve=words, files=(SERVER,), steps=Steps(first=50, budget=100), timeout_s=60.0,
        **given,
    )  # fmt: skip
    launch = world.launch("quiet", prepared=prepared)
    return world.run(replace(launch, scenario=scenario, payload=pack(Variant(scenario=scenario))))


@pytest.mark.parametrize(("fault", "end"), [("", "completed"), ("dies", "crash"), ("redirects", "setup")])
def test_a_server_is_measured_wherever_it_runs(
    world: World, remaining: Callable[[World], list[str]], fault: str, end: str
) -> None:
    trial = served(world, fault)
    assert trial.end == end, trial.message
    assert trial.last_step in {"": (100,), "dies": range(36, 60), "redirects": (0,)}[fault]
    assert remaining(world) == []
