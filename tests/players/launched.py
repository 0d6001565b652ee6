"""Launches of servers, and launches with mounted data, on one engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.model import Image, Limits, Mount, Prepared, Scenario, Steps, Trial, Variant
from harness.model.servers import Request, WhenReady
from harness.run.hosts.mounted_data import Found, HostData
from harness.run.trial.payload import pack
from tests.players.plans import a_cell
from tests.players.world import WHERE, World, host, installed, quiet

SERVER = Path(__file__).parents[1] / "agent" / "server.py"


def scenario_of(world: World, mount: Mount, *command: str, prepared: Prepared | None = None) -> Scenario:
    launch = world.launch("quiet", prepared=prepared)
    return replace(launch.scenario, script=None, command=command, limits=Limits(exit_only=True), mounts=(mount,))


def found(world: World, scenario: Scenario, environ: dict[str, str], *, image: Image | None = None) -> Found:
    image = image or installed()
    cell = replace(a_cell(on=host(world.kind)), variant=Variant(scenario=scenario), image=image)
    seen = HostData(environ=environ).of(cell, world.engine.prepare(image, quiet), world.engine, quiet)
    return seen[scenario.mounts[0]]


def ran(world: World, scenario: Scenario, seen: Found, *, prepared: Prepared | None = None) -> Trial:
    mount = scenario.mounts[0]
    told = {"at": mount.at, "from": str(mount.source), "files": seen.files, "identity": seen.identity}
    payload = pack(Variant(scenario=scenario), extras={"mounts": [told]})
    return world.run(replace(world.launch("quiet", prepared=prepared), scenario=scenario, payload=payload))


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
