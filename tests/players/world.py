"""One engine with a prepared image, and trials on it: what the tests of engines share."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

import docker as docker_sdk
import psutil

from harness.model import Host, Image, Install, Prepared, Pull, Scenario, Source, Steps, Trial, Variant, Where
from harness.model.engines import known_engines
from harness.run import open_engine, owners
from harness.run.engine import Engine, LaunchRequest
from harness.run.hosts.side_by_side import take_turns
from harness.run.slurm.container_commands import NODE_FOLDER
from harness.run.slurm.request import ContainerKind, NodeHold, NodeRequest
from harness.run.trial.conversation import Conversation, Sliced, alone
from harness.run.trial.payload import pack
from tests.players import local_engine

known_engines()["local"] = local_engine.KIND
WHERE = Where(file="matrix.yaml", line=7, key="series.tested")
SCRIPT = Path(__file__).parents[1] / "contract" / "faults.py"
ROOT = Path(__file__).parents[2]
BASE = os.environ.get("HARNESS_BASE", "harness-base:bookworm")


def quiet(text: str) -> None:
    """Ignore all progress."""


def engine_named() -> dict[str, str]:
    """Return the environment with only those variables that select the engine."""
    return {name: os.environ[name] for name in ("DOCKER_HOST", "DOCKER_CONTEXT") if name in os.environ}


def host(kind: str) -> Host:
    """Return the host of an engine. `slurm` with a suffix, such as `slurm:docker`, starts
    containers with that program.
    """
    where = Where(file="matrix.yaml", line=2, key="hosts.here")
    if not kind.startswith("slurm"):
        return Host(name="here", engine=kind, gpus="none", where=where)
    _, _, container = kind.partition(":")
    asked = NodeRequest(container=cast(ContainerKind, container or "none"), hold=NodeHold(time_s=1800.0, wait_s=120.0))
    return Host(name="here", engine="slurm", gpus="none", where=where, settings=asked)


def image(source: Source, **fields: Any) -> Image:
    return Image(series="tested", version="1", source=source, where=WHERE, **fields)


def installed(*packages: str, python: str | None = None) -> Image:
    return image(Install(base=BASE, python=python, packages=packages))


def pulled(reference: str) -> Image:
    return image(Pull(reference=reference))


@dataclass
class World:
    kind: str
    engine: Engine
    environ: Mapping[str, str]
    run_id: str = field(default_factory=lambda: secrets.token_hex(6))

    @classmethod
    def open(cls, kind: str, environ: Mapping[str, str]) -> World:
        return cls(kind=kind, engine=open_engine(host(kind), environ=environ, say=quiet), environ=environ)

    def launch(
        self, act: str, *, prepared: Prepared | None = None, value: Any = None, slices: int = 0, **fields: Any
    ) -> LaunchRequest:
        given = {"steps": Steps(first=20, budget=60), "timeout_s": 60.0, **fields}
        scenario = Scenario(name="faults", where=WHERE, script=SCRIPT, **given)
        variant = Variant(scenario=scenario, params=(("act", act), ("value", value)))
        return LaunchRequest(
            prepared=prepared or self.engine.prepare(installed(), quiet),
            scenario=scenario,
            payload=pack(variant, extras={"slices": slices}),
            run=self.run_id,
            cell_id="cell",
        )

    def trial(
        self,
        act: str,
        *,
        cancelled: Callable[[], bool] = lambda: False,
        on_step: Callable[[int, float | None], None] = lambda step, rss_kib: None,
        answer: str = "go",
        **fields: Any,
    ) -> Trial:
        return self.run(self.launch(act, **fields), cancelled=cancelled, on_step=on_step, answer=answer)

    def run(
        self,
        launch: LaunchRequest,
        *,
        cancelled: Callable[[], bool] = lambda: False,
        on_step: Callable[[int, float | None], None] = lambda step, rss_kib: None,
        answer: str = "go",
    ) -> Trial:
        conversation = Conversation(
            launch=launch,
            key="key",
            decide=lambda trace: answer,
            on_step=on_step,
            cancelled=cancelled,
        )
        return alone(conversation.run(self.engine))


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
        kept.append((yield from Conversation(launch=request, on_step=on_step).run(world.engine)))

    take_turns([partial(launch, act) for act in acts], seconds=0.1, cycles=count(1), rng=random.Random(1))


def what_remains(world: World) -> list[str]:
    if world.kind == "slurm":
        mark = f"_{os.getpid()}_"
        return [str(path) for path in Path(NODE_FOLDER).glob(f"{owners.PREFIX}*") if mark in path.name]
    if world.kind == "docker":
        client = docker_sdk.from_env()
        try:
            found = client.containers.list(all=True, filters={"label": f"harness.run={world.run_id}"})
            return [container.name for container in found]
        finally:
            client.close()
    mark = f"_{os.getpid()}_"
    folders = Path(tempfile.gettempdir()).glob(f"{owners.PREFIX}*")
    cgroups = Path("/sys/fs/cgroup").glob(f"**/{owners.PREFIX}*")
    return [str(path) for path in (*folders, *cgroups) if mark in path.name]


def cmdline(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []
