"""The whole path of a GPU through real engines: queried, chosen, requested, and seen inside. The GPUs are doubles."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InfrastructureError, Interrupted
from harness.model import Build, Trial
from harness.model.matrix import Gpu
from harness.plan.cells import choose_lanes
from harness.run.docker import host_probe
from harness.run.hosts.host_gpus import mismatch
from harness.run.trial.conversation import Conversation, alone
from tests.lab.conftest import opened, world
from tests.lab.daemon import HOOK, Daemon
from tests.lab.running import Lab
from tests.players.world import BASE, World, host, image, pulled, quiet
from tests.waiting import until

pytestmark = pytest.mark.docker
OLD, NEW = "GPU-30900000-1111-2222-3333-444444444444", "GPU-40900000-1111-2222-3333-444444444444"


@contextmanager
def changed(daemon: Daemon, **changes: object) -> Iterator[None]:
    before = daemon.data.read_text()
    daemon.set_gpus(**changes)
    try:
        yield
    finally:
        daemon.data.write_text(before)


def dockerd_version() -> int:
    """Return the major version of the installed dockerd; 0 if there is none."""
    program = shutil.which("dockerd")
    if program is None:
        return 0
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)", said)
    return int(found[1]) if found else 0


def trial_on(found: World, *gpus: Gpu) -> Trial:
    launch = replace(found.launch("quiet"), gpus=gpus)
    return alone(Conversation(launch=launch).run(found.engine))


def test_a_host_tells_its_gpus(lab: Lab) -> None:
    with closing(world(lab.old).engine) as engine:
        (gpu,) = engine.gpus([], quiet)
    assert (gpu.uuid, gpu.name, gpu.index) == (OLD, "NVIDIA GeForce RTX 3090", 0)
    assert (gpu.compute_capability, gpu.driver, gpu.cuda) == ("8.6", "535.104.05", "12.2")
    assert (gpu.memory_mib, gpu.power_limit_w, gpu.processes) == (24576, 350.0, 0)


def test_a_trial_has_the_card_it_asked_for_and_no_other(two_cards: Daemon) -> None:
    with opened(world(two_cards)) as found:
        gpus = found.engine.gpus([pulled(BASE)], quiet)
        lanes = choose_lanes(replace(host(two_cards.address), gpus="each"), gpus)
        assert [lane.gpu for lane in lanes] == ["RTX 4090 GPU-40900000-1111-2222-3333-444444444444",
                                                "RTX 4090 GPU-40900000-9999-2222-3333-444444444444"]  # fmt: skip
        for lane in lanes:
            trial = trial_on(found, *lane.gpus)
            assert trial.end == "completed", trial.message
            assert [each.uuid for each in trial.facts.gpus or ()] == [lane.gpus[0].uuid]
            assert mismatch(lane.gpus, trial.facts) == ""
        assert [each.uuid for each in trial_on(found, *gpus).facts.gpus or ()] == [gpu.uuid for gpu in gpus]
        assert trial_on(found).facts.gpus is None


def test_another_card_than_asked_for_is_noticed(two_cards: Daemon) -> None:
    """A toolkit that counts in a different order from the driver: every figure would be attributed
    to the wrong card.
    """
    with opened(world(two_cards)) as found:
        first, second = found.engine.gpus([], quiet)
        with changed(two_cards, gives={first.uuid: second.uuid}):
            trial = trial_on(found, first)
    assert mismatch((first,), trial.facts).startswith("not the requested GPU: requested 0 NVIDIA GeForce RTX")


def test_a_card_that_is_gone_and_a_hook_that_fails_are_infrastructure(lab: Lab) -> None:
    with opened(world(lab.new)) as found:
        (gpu,) = found.engine.gpus([], quiet)
        with pytest.raises(InfrastructureError, match="device error: GPU-gone: unknown device"):
            trial_on(found, replace(gpu, uuid="GPU-gone"))
        with changed(lab.new, fail="initialization error: nvml error: driver not loaded"):
            with pytest.raises(
                InfrastructureError, match=r"the engine refused: its hook failed: .*driver not loaded; see that engine"
            ):
                trial_on(found, gpu)
            with pytest.raises(
                InfrastructureError, match=r"hosts\.here\.gpus: a container with GPUs does not start: .*driver n"
            ):
                found.engine.gpus([], quiet)
        assert found.engine.remove_leftovers() == 0


def test_a_driver_that_is_stuck_is_not_waited_for(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(text: str) -> None:
        raise Interrupted("interrupted")

    monkeypatch.setattr(host_probe, "PROBE_S", 1)
    with changed(lab.new, sleeps_s=4), closing(world(lab.new).engine) as engine:
        with pytest.raises(
            InfrastructureError, match=r"the NVIDIA driver did not answer within 1 s; see `nvidia-smi` the"
        ):
            engine.gpus([], quiet)
        with pytest.raises(Interrupted):
            engine.gpus([], after_the_first(interrupted))
        assert until(lambda: engine.remove_leftovers() == 0, seconds=10)
    with closing(lab.new.client()) as client:
        assert client.containers.list(all=True) == []


def after_the_first(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return `say` without its first call."""
    calls: list[str] = []

    def told(text: str) -> None:
        calls.append(text)
        if len(calls) > 1:
            say(text)

    return told


def test_a_driver_that_is_too_old_for_an_image_can_still_be_asked(lab: Lab, tmp_path: Path) -> None:
    """The toolkit itself refuses the image; the host's GPU is still reported, for the table of doctor."""
    (tmp_path / "Dockerfile").write_text(f'FROM {BASE}\nENV NVIDIA_REQUIRE_CUDA="cuda>=12.4"\n')
    found, demanding = world(lab.old), image(Build(context=tmp_path, args=()))
    with closing(found.engine):
        prepared = found.engine.prepare(demanding, quiet)
        asked = pulled(prepared.reference)
        (gpu,) = found.engine.gpus([asked], quiet)
        launch = replace(found.launch("quiet", prepared=prepared), gpus=(gpu,))
        with (
            pytest.raises(InfrastructureError, match=r"unsatisfied condition: cuda>=12\.4"),
            found.engine.launch(launch),
        ):
            pytest.fail("it was started")


@pytest.mark.skipif(shutil.which(HOOK) is not None, reason="this machine's own engine has GPUs")
def test_an_engine_without_the_toolkit_says_what_to_do(lab: Lab) -> None:
    told = pytest.raises(
        InfrastructureError, match=r"could not select device driver.*install the NVIDIA Container Tool"
    )
    with closing(World.open("docker", os.environ).engine) as engine, told:
        engine.gpus([], quiet)


def test_an_engine_that_has_gpus_by_a_runtime_alone(lab: Lab) -> None:
    """dockerd does not find the toolkit's hook: `--gpus` is refused, and the next method is tried."""
    data = json.loads(lab.new.data.read_text())
    with started_anew(lab.new, replace(lab.new, way="runtime"), data) as other:
        with opened(world(other)) as found:
            (gpu,) = found.engine.gpus([], quiet)
            trial = trial_on(found, gpu)
            assert (gpu.uuid, mismatch((gpu,), trial.facts)) == (NEW, "")
            assert trial_on(found).facts.gpus is None
        again = world(other)
        with closing(again.engine):  # an engine that was not queried finds the method by itself
            assert mismatch((gpu,), trial_on(again, gpu).facts) == ""


@contextmanager
def started_anew(usual: Daemon, other: Daemon, data: Mapping[str, Any]) -> Iterator[Daemon]:
    """Run `other` in place of `usual`, which is started again after the test."""
    before = json.loads(usual.data.read_text())
    usual.stop()
    try:
        other.start(data)
        yield other
    finally:
        other.stop()
        usual.start(before)


@pytest.mark.skipif(dockerd_version() < 25, reason="CDI is tried on Docker Engine 25 or later alone")
def test_an_engine_that_has_gpus_by_cdi_alone(lab: Lab) -> None:
    """Two cards, each by its UUID; a card that the spec does not know is an error with the remedy."""
    data = json.loads(lab.new.data.read_text())
    card = data["gpus"][0]
    replicate = {**card, "uuid": card["uuid"].replace("1111", "9999")}
    cards = {**data, "gpus": [card, replicate]}
    with started_anew(lab.new, replace(lab.new, way="cdi"), cards) as other, opened(world(other)) as found:
        gpus = found.engine.gpus([], quiet)
        assert [gpu.uuid for gpu in gpus] == [NEW, replicate["uuid"]]
        for asked in ((gpus[0],), (gpus[1],), gpus):
            trial = trial_on(found, *asked)
            assert trial.end == "completed", trial.message
            assert [each.uuid for each in trial.facts.gpus or ()] == [gpu.uuid for gpu in asked]
        assert trial_on(found).facts.gpus is None
        with pytest.raises(InfrastructureError, match=r"GPU-gone; .* `nvidia-ctk cdi generate"):
            trial_on(found, replace(gpus[0], uuid="GPU-gone"))
