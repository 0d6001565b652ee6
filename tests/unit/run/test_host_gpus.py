"""Which GPU a word means, how an engine is asked for it, and whether a trial had it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InfrastructureError
from harness.model import Host, Where
from harness.model.matrix import Gpu
from harness.model.measured import Facts
from harness.plan.cells import choose_lanes
from harness.run.docker.containers import GpuAccess
from harness.run.hosts.host_gpus import mismatch, parse_gpus
from tests.players.trials import facts_of
from tests.players.world import World, quiet

OLD = Gpu(uuid="GPU-1a2b3c4d-0001", name="NVIDIA GeForce RTX 3090", index=0, compute_capability="8.6")
NEW = Gpu(uuid="GPU-5e6f7a8b-0002", name="NVIDIA GeForce RTX 4090", index=1, compute_capability="8.9")
TWIN = replace(NEW, uuid="GPU-99990000-0003", index=2)
PART = Gpu(uuid="MIG-7777", name="NVIDIA A100 MIG 1g.5gb", index=3, parent="GPU-aaaa")


def host(gpus: Any) -> Host:
    where = Where(file="matrix.yaml", line=4, key="hosts.lab")
    return Host(name="lab", engine="docker", gpus=gpus, where=where)


@pytest.mark.parametrize(
    ("entry", "meant"),
    [("0", OLD), ("1", NEW), ("RTX 3090", OLD), ("rtx 3090", OLD), (NEW.uuid, NEW), ("GPU-5e6f", NEW),
     ("MIG-7777", PART), ("GPU-aaaa", PART), ("1g.5gb", PART)],
)  # fmt: skip
def test_an_entry_means_one_gpu(entry: str, meant: Gpu) -> None:
    (lane,) = choose_lanes(host((entry,)), [OLD, NEW, PART])
    assert lane.gpus == (meant,)
    assert lane.gpu == meant.short_name


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        (("RTX 5090",), "matrix.yaml:4: hosts.lab.gpus[0]: no GPU matches 'RTX 5090' on host lab; it has: 0 NVIDIA"
         " GeForce RTX 3090 (GPU-1a2b3c4d-0001); 1 NVIDIA GeForce RTX 4090 (GPU-5e6f7a8b-0002); 2 NVIDIA GeForce RTX"
         " 4090 (GPU-99990000-0003)"),
        (("0", "4090"), "matrix.yaml:4: hosts.lab.gpus[1]: '4090' matches 2 GPUs on host lab: 1 NVIDIA GeForce RTX 4090"
         " (GPU-5e6f7a8b-0002); 2 NVIDIA GeForce RTX 4090 (GPU-99990000-0003); name one by its UUID"),
        (("0", "3090"), "matrix.yaml:4: hosts.lab.gpus[1]: '0' and '3090' are the same GPU, 0 NVIDIA GeForce RTX 3090"
         " (GPU-1a2b3c4d-0001); keep one"),
        (("7",), None), (("GPU-",), None), (("MIG-1",), None),
    ],
)  # fmt: skip
def test_an_entry_that_is_none_or_several_says_what_is_there(gpus: tuple[str, ...], said: str | None) -> None:
    with pytest.raises(InfrastructureError) as caught:
        choose_lanes(host(gpus), [OLD, NEW, TWIN])
    assert "\n" not in str(caught.value)
    assert said is None or str(caught.value) == said


@pytest.mark.parametrize("entry", ["GTX 1080", "gtx 1080", "GeForce GTX 1080", "NVIDIA GeForce GTX 1080"])
def test_a_whole_name_means_no_card_whose_name_goes_on(entry: str) -> None:
    """`GTX 1080` matched two cards in a machine with a GTX 1080 Ti, and no name selected the first."""
    card = replace(OLD, name="NVIDIA GeForce GTX 1080")
    more = replace(NEW, name="NVIDIA GeForce GTX 1080 Ti")
    (lane,) = choose_lanes(host((entry,)), [more, card])
    assert lane.gpus == (card,)
    with pytest.raises(InfrastructureError, match="'1080' matches 2 GPUs"):
        choose_lanes(host(("1080",)), [more, card])
    with pytest.raises(InfrastructureError, match="matches 2 GPUs"):
        choose_lanes(host((entry,)), [more, card, replace(card, uuid="GPU-2", index=2)])


def test_all_each_and_none() -> None:
    (lane,) = choose_lanes(host("all"), [OLD, NEW])
    assert (str(lane), lane.gpus) == ("lab/all", (OLD, NEW))
    assert [str(lane) for lane in choose_lanes(host("each"), [OLD, NEW, TWIN])] == [
        "lab/RTX 3090", "lab/RTX 4090 GPU-5e6f7a8b", "lab/RTX 4090 GPU-99990000",
    ]  # fmt: skip
    assert choose_lanes(host("none"), [OLD])[0].gpus == ()
    with pytest.raises(InfrastructureError, match=r"hosts\.lab\.gpus: host lab has no GPU"):
        choose_lanes(host("each"), [])


def test_a_fingerprint_holds_what_stays() -> None:
    """A card that moved to another slot is the same card; another power limit gives different figures."""
    assert replace(OLD, index=5, processes=3).fingerprint == OLD.fingerprint
    assert replace(OLD, power_limit_w=200.0).fingerprint != OLD.fingerprint
    assert replace(OLD, driver="535.54").fingerprint != OLD.fingerprint


# ---------------------------------------------------------------- how an engine is asked


def test_a_gpu_is_asked_for_by_its_uuid_alone() -> None:
    access = GpuAccess({})
    (request,) = access.host_config([OLD.uuid])["device_requests"]
    assert (request["DeviceIDs"], request["Capabilities"], request["Count"]) == ([OLD.uuid], [["gpu"]], 0)
    (request,) = access.host_config(["all"])["device_requests"]
    assert (request["DeviceIDs"], request["Count"]) == ([], -1)
    assert access.host_config([]) == {}
    assert access.environment([OLD.uuid]) == {}


def test_what_an_engine_lacks_is_asked_in_another_way() -> None:
    access = GpuAccess({"Runtimes": {"runc": {}, "nvidia": {}}, "CDISpecDirs": ["/etc/cdi"]})
    assert access.refused("no space left on device") is False
    assert access.refused('could not select device driver "" with capabilities: [[gpu]]')
    assert access.host_config([OLD.uuid]) == {"runtime": "nvidia"}
    assert access.environment([OLD.uuid, NEW.uuid]) == {"NVIDIA_VISIBLE_DEVICES": f"{OLD.uuid},{NEW.uuid}"}
    assert access.refused("Unknown runtime specified nvidia")
    (request,) = access.host_config([OLD.uuid])["device_requests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", [f"nvidia.com/gpu={OLD.uuid}"])
    assert access.refused('could not select device driver "cdi"') is False, "nothing is left to try"


def test_podman_is_asked_by_cdi_alone() -> None:
    """It silently accepts any other request, and starts the container without a GPU."""
    access = GpuAccess({"BuildahVersion": "1.39.3", "ServerVersion": "5.4.2", "Runtimes": {"crun": {}, "nvidia": {}}})
    (request,) = access.host_config(["all"])["device_requests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=all"])
    assert access.refused("setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all") is False


def test_no_gpu_is_had_unasked() -> None:
    """NVIDIA's images request all GPUs by themselves, and such an engine gives them."""
    access = GpuAccess({"Runtimes": {"nvidia": {}}, "DefaultRuntime": "nvidia"})
    assert access.environment([]) == {"NVIDIA_VISIBLE_DEVICES": "void"}


# ---------------------------------------------------------------- what the probe says


def fields(gpu: Gpu, **changed: Any) -> dict[str, Any]:
    return {"uuid": gpu.uuid, "name": gpu.name, "index": gpu.index, **changed}


def test_the_probe_is_read() -> None:
    told = fields(OLD, compute_capability="8.6", driver="535.54", memory_mib=24576, power_limit_w=350.0, ecc=False)
    (gpu,) = parse_gpus(f"== a banner ==\n{json.dumps({'gpus': [told]})}\n", place="p") or ()
    assert (gpu.driver, gpu.memory_mib, gpu.power_limit_w, gpu.ecc, gpu.mig) == ("535.54", 24576, 350.0, False, None)
    assert parse_gpus("{}", place="p") is None
    assert parse_gpus('{"gpus": []}', place="p") == ()


@pytest.mark.parametrize(
    "output",
    ["", "Traceback\nImportError: no module", "{", "[]", '{"gpus": 1}', '{"gpus": [{}]}', '{"gpus": [null]}',
     json.dumps({"gpus": [fields(OLD, name="a\x1b[31m")]}), json.dumps({"gpus": [fields(OLD, memory_mib="many")]}),
     json.dumps({"gpu_problem": "NVML does not start: the driver is not loaded"})],
)  # fmt: skip
def test_a_probe_that_says_something_else(output: str) -> None:
    with pytest.raises(InfrastructureError, match=r"^p: ") as caught:
        parse_gpus(output, place="p")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ([fields(OLD), fields(OLD)], "two GPUs have the same UUID"),
        ([fields(OLD, uuid="")], "'' is not a valid name"),
        ([fields(OLD, name="\x1b[31mred")], r"'\x1b[31mred' is not a valid name"),
    ],
)
def test_what_no_driver_says_is_told_as_it_is(gpus: list[dict[str, Any]], said: str) -> None:
    """Two GPUs with one UUID made two lanes with one name, and one cell was measured for both."""
    with pytest.raises(InfrastructureError) as caught:
        parse_gpus(json.dumps({"gpus": gpus}), place="p")
    assert str(caught.value) == f"p: the driver's list of GPUs is invalid: {said}; see `nvidia-smi -L` there"


# ---------------------------------------------------------------- what a trial had


def seen(*gpus: Gpu, **environment: str) -> Facts:
    return facts_of({"gpus": [fields(gpu) for gpu in gpus], "environment": environment})


def test_the_gpu_asked_for_is_the_gpu_had() -> None:
    assert mismatch((), seen(OLD)) == ""
    assert mismatch((OLD,), seen(OLD)) == ""
    assert mismatch((OLD, NEW), seen(NEW, OLD)) == ""
    assert mismatch((NEW,), seen(OLD, NEW, CUDA_VISIBLE_DEVICES=NEW.uuid)) == ""
    assert mismatch((NEW,), seen(NEW, CUDA_VISIBLE_DEVICES="0")) == ""


@pytest.mark.parametrize(
    ("facts", "inside"),
    [(seen(NEW), NEW.uuid), (seen(OLD, NEW), NEW.uuid), (seen(), "none"), (Facts(), "none"),
     (Facts(gpu_problem="NVML does not start"), "NVML does not start"),
     (seen(OLD, NEW, CUDA_VISIBLE_DEVICES=NEW.uuid), NEW.uuid)],
)  # fmt: skip
def test_another_gpu_than_asked_for_is_told(facts: Facts, inside: str) -> None:
    said = mismatch((OLD,), facts)
    assert OLD.uuid in said
    assert said.endswith(f"the trial sees: {inside}") or f"({inside})" in said.split("the trial sees")[1]


# ---------------------------------------------------------------- a process host with a GPU


SOURCE = Path(__file__).parents[2] / "agent/fake_nvml.c"
TOLD = """driver 550.54
cuda 12040
count 1
gpu0.uuid GPU-1
gpu0.name NVIDIA H100 PCIe
gpu0.capability 90
gpu0.total 85899345920
gpu0.used 0
gpu0.ecc 1
gpu0.power_limit 350000
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the stand-in's answers, which may be changed."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", SOURCE], check=True)
    path = tmp_path / "told"
    path.write_text(TOLD)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("FAKE_NVML", str(path))
    return path


def test_a_process_host_tells_its_gpus(told: Path) -> None:
    with closing(World.open("process", os.environ).engine) as engine:
        (gpu,) = engine.gpus([], quiet)
        assert (gpu.uuid, gpu.short_name, gpu.compute_capability) == ("GPU-1", "H100 PCIe", "9.0")
        assert (gpu.driver, gpu.cuda, gpu.memory_mib) == ("550.54", "12.4", 81920)
        assert (gpu.ecc, gpu.power_limit_w) == (True, 350.0)
        told.write_text("count 0\n")
        assert engine.gpus([], quiet) == ()


def test_a_driver_that_does_not_start_is_told(told: Path) -> None:
    told.write_text("fail.nvmlInit_v2 9\nfail.nvmlInit 9\n")
    said = pytest.raises(InfrastructureError, match=r"hosts\.here\.gpus: .*the driver is not loaded; see `nvidia-smi`")
    with closing(World.open("process", os.environ).engine) as engine, said:
        engine.gpus([], quiet)
