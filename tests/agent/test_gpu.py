"""The agent with a stand-in for NVML: a real shared library with the ABI of the real one (fake_nvml.c)."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.agent import samples
from harness.agent.probes import gpus, nvml
from harness.agent.samples import Pace
from harness.flows.judge import judge_file
from harness.judge.trace.trace_verdict import judge_trace
from harness.model import Limits, Steps, Trace
from harness.model.matrix import Gpu
from tests.agent import driver
from tests.agent.driver import Told, pack, pack_with

SOURCE = Path(__file__).with_name("fake_nvml.c")
CARD = {
    "driver": "535.104.05", "cuda": 12020, "count": 1, "gpu0.uuid": "GPU-a1b2", "gpu0.capability": 89,
    "gpu0.name": "NVIDIA GeForce RTX 4090", "gpu0.total": 24564 << 20, "gpu0.used": 1000 << 10,
    "gpu0.reserved": 300 << 20, "gpu0.processes": "4000:1048576,4001:-1", "gpu0.power_limit": 450000,
    "gpu0.power": 300500, "gpu0.temperature": 61, "gpu0.clock": 2520, "gpu0.busy": 97, "gpu0.reasons": 4,
}  # fmt: skip
FACT = {
    "index": 0, "uuid": "GPU-a1b2", "name": "NVIDIA GeForce RTX 4090", "compute_capability": "8.9",
    "driver": "535.104.05", "cuda": "12.2", "memory_mib": 24564, "power_limit_w": 450.0, "ecc": None, "mig": None,
    "parent": None, "processes": 2,
}  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the stand-in for NVML is built with gcc")


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return folders with libnvidia-ml.so.1 as in newer drivers, in drivers around R470, and in those before R450."""
    built = {}
    for age, option in (("new", "-DNEW"), ("middle", "-DMIDDLE"), ("old", "-DOLD")):
        built[age] = tmp_path_factory.mktemp(age)
        target = built[age] / nvml.NAME
        subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", option, "-o", target, SOURCE], check=True)
    return built


State = Callable[..., Path]


@pytest.fixture
def state(tmp_path: Path) -> State:
    """Yield a function that sets what the stand-in reports: CARD, with changes; None removes a line."""

    def say(**changes: Any) -> Path:
        told = {**CARD, **{name.replace("__", "."): value for name, value in changes.items()}}
        path = tmp_path / "state"
        path.write_text("".join(f"{name} {value}\n" for name, value in told.items() if value is not None))
        return path

    return say


@pytest.fixture
def asked(libraries: dict[str, Path], state: State, monkeypatch: pytest.MonkeyPatch) -> Callable[..., gpus.Gpus]:
    """Return the GPUs that this process finds in a stand-in that reports CARD with changes."""

    def ask(age: str = "new", **changes: Any) -> gpus.Gpus:
        monkeypatch.setenv("FAKE_NVML", str(state(**changes)))
        return gpus.find_gpus(str(libraries[age] / nvml.NAME))

    return ask


@pytest.mark.parametrize(
    ("level", "peers", "link"),
    [(30, 2, "PHB, no peer access"), (50, 1, "SYS, peer access"), (30, 0, "NVLink, peer access"), (30, None, "PHB"),
     (None, None, None)],
)  # fmt: skip
def test_the_connection_of_two_cards_is_told(
    asked: Callable[..., gpus.Gpus], level: int | None, peers: int | None, link: str | None
) -> None:
    """Two cards without peer access were the cause of hangs that took users days to find."""
    facts = asked(count=2, gpu1__uuid="GPU-c3d4", gpu0__level=level, gpu0__peers=peers).facts()
    assert facts.get("gpu_links") == (link and {"0 and 1": link})


def environment(folder: Path, told: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML": str(told)}


# ---------------------------------------------------------------- what they are


def test_the_facts_are_those_of_the_model() -> None:
    assert set(FACT) == {field.name for field in fields(Gpu)}


@pytest.mark.parametrize("age", ["new", "middle", "old"])
def test_every_python_finds_the_gpu_in_the_library_of_every_driver(
    python: str, age: str, libraries: dict[str, Path], state: State, tmp_path: Path
) -> None:
    pack(tmp_path / "root", None)
    command = [python, "-B", str(tmp_path / "root/start.py"), "gpus"]
    told = subprocess.run(
        command, env={**os.environ, **environment(libraries[age], state())}, capture_output=True, check=True
    )
    assert json.loads(told.stdout) == {"gpus": [FACT]}


def test_without_the_library_there_is_nothing_to_tell() -> None:
    assert gpus.find_gpus("libnvidia-ml.so.none").facts() == {}


def test_a_library_that_does_not_start_says_why(asked: Callable[..., gpus.Gpus]) -> None:
    codes = {"fail__nvmlInit_v2": 18, "fail__nvmlInit": 18}
    assert asked(**codes).facts() == {"gpu_problem": "NVML does not start: driver and library have different versions"}
    assert asked("old", fail__nvmlInit=4242).facts() == {"gpu_problem": "NVML does not start: error 4242"}


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetUUID", "uuid"),
        ("nvmlDeviceGetName", "name"),
        ("nvmlDeviceGetCudaComputeCapability", "compute_capability"),
        ("nvmlSystemGetDriverVersion", "driver"),
        ("nvmlDeviceGetEnforcedPowerLimit", "power_limit_w"),
    ],
)
def test_what_fails_is_null_and_the_rest_is_told(asked: Callable[..., gpus.Gpus], function: str, field: str) -> None:
    assert asked(**{f"fail__{function}": 999}).facts() == {"gpus": [{**FACT, field: None}]}


def test_a_newer_function_that_fails_gives_way_to_the_older_one(asked: Callable[..., gpus.Gpus]) -> None:
    newer = (
        "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount_v2",
    )  # fmt: skip
    found = asked(**{f"fail__{function}": 13 for function in newer})

    assert found.facts() == {"gpus": [FACT]}
    assert found.cards[0].device.processes() == {4000: 1 << 20, 4001: None}


def test_rows_of_processes_that_are_too_long_fit_all_the_same(asked: Callable[..., gpus.Gpus]) -> None:
    """Some drivers of the 535 series changed the structure but not the function's name."""
    many = {pid: pid << 20 for pid in range(1, nvml.MOST_PROCESSES + 1)}
    told = ",".join(f"{pid}:{used}" for pid, used in many.items())
    assert asked(gpu0__processes=told).cards[0].device.processes() == many
    found = asked(gpu0__processes=told, fail__nvmlDeviceGetComputeRunningProcesses_v2=13).cards[0].device.processes()
    assert found is not None
    assert found[1] == 1 << 20, "at least the first one is right, and no memory beyond the rows is written"


def test_strange_answers_are_not_believed(asked: Callable[..., gpus.Gpus]) -> None:
    assert asked(count=0).facts() == {}
    assert len(asked(count=4_000_000_000).cards) == nvml.MOST_DEVICES
    assert asked(gpu0__name="x" * 400).facts()["gpus"][0]["name"] is None
    assert asked(gpu0__total=0).cards[0].device.memory_bytes() is None
    assert asked(gpu0__used=1 << 60).cards[0].device.memory_bytes() == (24564 << 20, 24564 << 20)
    many = ",".join(f"{pid}:1" for pid in range(1, 400))
    assert asked(gpu0__processes=many).cards[0].device.processes() is None


def test_what_the_driver_keeps_for_itself_is_not_used(asked: Callable[..., gpus.Gpus]) -> None:
    assert asked().cards[0].device.memory_bytes() == (1000 << 10, 24564 << 20)
    assert asked("old").cards[0].device.memory_bytes() == ((1000 << 10) + (300 << 20), 24564 << 20)


def test_instances_stand_in_the_place_of_their_card(asked: Callable[..., gpus.Gpus]) -> None:
    found = asked(
        gpu0__mig=1, gpu0__ecc=1, gpu0__instances=7, gpu0__mig0__uuid="MIG-1", gpu0__mig3__uuid="MIG-2",
        gpu0__mig0__name="A100 MIG 1g.5gb", gpu0__mig3__total=4864 << 20, gpu0__mig3__used=37 << 20,
    )  # fmt: skip
    first, second = found.facts()["gpus"]

    assert (first["uuid"], first["parent"], first["name"]) == ("MIG-1", "GPU-a1b2", "A100 MIG 1g.5gb")
    assert (second["uuid"], second["memory_mib"], second["mig"], second["ecc"]) == ("MIG-2", 4864, True, True)
    assert second["compute_capability"] == "8.9", "that of the card"


TWO = {"count": 2, "gpu1.uuid": "GPU-a1c3", "gpu1.name": "NVIDIA GeForce RTX 4090"}
OTHER = {**TWO, "gpu1.name": "NVIDIA GeForce RTX 3090"}


@pytest.mark.parametrize(
    ("cards", "variables", "indices"),
    [
        (TWO, {}, [0, 1]),
        (TWO, {"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        (TWO, {"CUDA_VISIBLE_DEVICES": "1,0"}, [1, 0]),
        (TWO, {"CUDA_VISIBLE_DEVICES": "1, 7, 0"}, [1]),
        (TWO, {"CUDA_VISIBLE_DEVICES": ""}, []),
        (TWO, {"CUDA_VISIBLE_DEVICES": "-1"}, []),
        (TWO, {"CUDA_VISIBLE_DEVICES": "GPU-a1c"}, [1]),
        (OTHER, {"CUDA_VISIBLE_DEVICES": "1"}, [0, 1]),
        (OTHER, {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [1]),
        (OTHER, {"CUDA_VISIBLE_DEVICES": "GPU-a1b2"}, [0]),
    ],
)
def test_only_the_gpus_that_cuda_will_use_are_sampled(
    asked: Callable[..., gpus.Gpus], cards: dict[str, Any], variables: dict[str, str], indices: list[int]
) -> None:
    found = asked(**cards).cards
    assert [card.index for card in gpus.visible_cards(found, variables)] == indices


# ---------------------------------------------------------------- what they do


def watching(found: gpus.Gpus, clock: Callable[[], float] = lambda: 0.0) -> tuple[gpus.Monitor, samples.Table]:
    table = samples.Table(-1, 100)
    return gpus.Monitor(found, table, {}, clock=clock), table


def test_a_row_is_sampled_once_and_not_more_often_than_every_50_ms(asked: Callable[..., gpus.Gpus]) -> None:
    now = [0.0]
    watch, table = watching(asked(), lambda: now[0])
    taken = []
    for step in range(1, 100):
        now[0] = step / 100 + step / 1e6
        table.header[samples.STEPS] = step
        watch.tick(now[0], 0)
        watch.tick(now[0], 0)
        taken.append(table.column(gpus.MEMORY)[step - 1] == 1000)

    assert taken[:12] == [True, False, False, False, False, True, False, False, False, False, True, False]
    assert table.column(gpus.OWN)[0] != 0, "no process of ours: no number"


def test_a_driver_that_answers_slowly_is_asked_seldom() -> None:
    clock = iter([10.1, 20.1])
    pace = Pace(0.05, lambda: next(clock), gpus.SHARE)
    pace.spent(10.0)
    assert pace.due(10.06), "one slow answer may be a neighbour's fault"
    pace.spent(20.0)
    assert not pace.due(29.9)
    assert pace.due(30.1), "0.1 s are 1 % of 10 s"


def test_rows_that_were_sent_are_not_sampled(asked: Callable[..., gpus.Gpus]) -> None:
    watch, table = watching(asked())
    table.header[samples.STEPS] = 5
    watch.tick(1.0, 5)
    assert table.column(gpus.MEMORY)[4] != 1000


def test_a_look_says_what_held_the_clocks_down(asked: Callable[..., gpus.Gpus], state: State) -> None:
    watch, _ = watching(asked())
    for reasons, clock, temperature in ((0x4, 2520, 70), (0x20, 1410, 88), (0x1, 210, 60), (0x0, 2520, 65)):
        state(gpu0__reasons=reasons, gpu0__clock=clock, gpu0__temperature=temperature)
        watch._sample_state()
    first, second = watch.look(), watch.look()

    assert first["gpu_heat_share"] == first["gpu_power_share"] == pytest.approx(1 / 3), "of the time it worked"
    assert first["gpu_clock_mhz"] == pytest.approx((2520 + 1410 + 2520) / 3)
    assert (first["gpu_reasons"], first["gpu_temperature_c"], first["gpu_power_w"]) == (0x24, 88, 300.5)
    assert (first["gpu_kib"], first["gpu_process_kib"], first["gpu_busy"]) == (1000, None, 97)
    assert (second["gpu_heat_share"], second["gpu_reasons"], second["gpu_temperature_c"]) == (0, 0, 65)


def test_of_two_cards_memory_is_the_sum_and_the_hotter_one_counts(asked: Callable[..., gpus.Gpus]) -> None:
    second = {"gpu1.total": 24564 << 20, "gpu1.used": 24 << 10, "gpu1.temperature": 90, "gpu1.clock": 900}
    watch, _ = watching(asked(**TWO, **second))
    fields = watch.look()
    assert (fields["gpu_kib"], fields["gpu_temperature_c"], fields["gpu_clock_mhz"]) == (1024, 90, 900)


def test_a_card_that_says_nothing_for_once_is_no_fall_of_the_sum(asked: Callable[..., gpus.Gpus]) -> None:
    silent = {"gpu1.temperature": 90, "gpu1.clock": 900}
    watch, _ = watching(asked(**TWO, **silent))
    assert watch.look()["gpu_kib"] is None


def test_errors_of_the_driver_and_a_lost_gpu_are_noted(asked: Callable[..., gpus.Gpus], state: State) -> None:
    watch, _ = watching(asked())
    assert watch.notes() == []
    state(gpu0__xid=79)
    assert watch.look()["gpu_xid"] == 79
    state(gpu0__xid=79, fail__nvmlDeviceGetMemoryInfo_v2=15, fail__nvmlDeviceGetMemoryInfo=15)
    assert watch.look()["gpu_kib"] is None
    assert watch.notes() == [
        "NVIDIA driver: Xid 79 during the trial", "NVML: a GPU is lost: it has fallen off the bus",
    ]  # fmt: skip


def test_a_driver_that_can_tell_of_no_event_is_not_asked(asked: Callable[..., gpus.Gpus]) -> None:
    watch, _ = watching(asked(fail__nvmlEventSetCreate=3, gpu0__xid=43))
    assert watch.look()["gpu_xid"] is None


# ---------------------------------------------------------------- whole trials

LEAKS = """
    import os, time

    def setup(path, pause_s=0.0):
        base, made = open(path).read(), [0]

        def tell(used_kib):
            with open(path + ".new", "w") as file:
                file.write("gpu0.used %d\\n" % (used_kib << 10))
                file.write("gpu0.processes 1:5,%d:%d\\n" % (os.getpid(), used_kib << 9))
                file.write(base)
            os.rename(path + ".new", path)

        def step():
            made[0] += 1
            tell(24 * made[0])
            time.sleep(pause_s)
        globals()["teardown"] = lambda: tell(0)
        return step
"""


def run(root: Path, python: str, script: str | None, variables: dict[str, str], **job: Any) -> Told:
    return driver.run(root, python, script, variables=variables, environment=["TF_FORCE_*"], **job)


@pytest.mark.smoke
def test_a_trial_with_a_gpu(python: str, libraries: dict[str, Path], state: State, tmp_path: Path) -> None:
    told = state(gpu0__used=None, gpu0__processes=None, gpu0__xid=31)
    job = {"params": {"path": str(told), "pause_s": 0.005}, "looks": [30, 60]}
    trial = run(tmp_path, python, LEAKS, environment(libraries["new"], told), **job)
    first, last = (message["look"] for message in trial.all("look"))
    sampled = [(row, value) for row, value in enumerate(trial.column("gpu_kib"), 1) if value is not None]

    assert trial.done["end"] == "completed", trial.done
    assert trial.done["message"] == "NVIDIA driver: Xid 31 during the trial"
    assert trial.one("hello")["gpus"][0]["uuid"] == "GPU-a1b2"
    assert trial.one("hello")["environment"] == {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert "gpu" in trial.one("ready")["probes"]
    assert (first["gpu_kib"], first["gpu_process_kib"], first["gpu_clock_mhz"]) == (720, 360, 2520)
    assert (last["gpu_kib"], last["gpu_process_kib"]) == (1440, 720), "before its teardown gave the memory back"
    assert 3 <= len(sampled) < 30
    assert sampled[-1] == (60, 1440)
    assert all(24 * row <= value <= 1440 for row, value in sampled), "steps may go on while the driver is asked"


def test_a_planted_leak_of_gpu_memory_is_found(
    libraries: dict[str, Path], state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the driver's answers to the verdict: 24 KiB/step on the device, half of it from this process."""
    pack_with(
        monkeypatch, tmp_path / "agent", "probes/gpus.py", "SHARE = 0.01", "SHARE = 0.3"
    )  # on a slow machine, too
    told = state(gpu0__used=None, gpu0__processes=None)
    job = {"params": {"path": str(told), "pause_s": 0.017}, "looks": [250, 500]}
    trial = run(tmp_path, sys.executable, LEAKS, environment(libraries["new"], told), **job)
    columns = {
        name: np.array([np.nan if value is None else value for value in trial.column(name)])
        for name in ("gpu_kib", "gpu_process_kib")
    }
    trace = Trace(step=np.array(trial.column("step"), dtype=np.float64), columns=columns)
    steps = Steps(first=250, budget=500)
    kept = tmp_path / "trace.csv"
    rows = zip(*(trial.column(name) for name in ("step", "rss_kib", *columns)), strict=True)
    lines = (",".join("" if value is None else f"{value}" for value in row) for row in rows)
    kept.write_text("\n".join([f"step,rss_kib,{','.join(columns)}", *lines, ""]))
    in_a_sweep = judge_trace(trace, limits=Limits(), steps=steps)

    for found in (in_a_sweep, judge_file(kept, limits=Limits(), metrics={})):
        assert found.verdict == "leak", found
        assert found.why.startswith("the process's GPU memory grows ")
        assert found.growth.rate == pytest.approx(12, rel=0.1)


def test_a_trial_without_a_gpu_says_nothing_of_one(thorough_python: str, tmp_path: Path) -> None:
    script = "def setup():\n    return lambda: None\n"
    trial = run(tmp_path, thorough_python, script, {"LD_LIBRARY_PATH": str(tmp_path)})

    assert not {"gpus", "gpu_problem"} & set(trial.one("hello"))
    assert trial.one("hello")["environment"] == {}
    assert "gpu" not in trial.one("ready")["probes"]
    assert not any(name.startswith("gpu") for message in trial.all("samples") for name in message["columns"])
    assert all(value is None for name, value in trial.all("look")[-1]["look"].items() if name.startswith("gpu"))


def test_what_the_scenario_says_of_tensorflow_s_memory_stands(
    thorough_python: str, libraries: dict[str, Path], state: State, tmp_path: Path
) -> None:
    variables = {**environment(libraries["old"], state()), "TF_FORCE_GPU_ALLOW_GROWTH": "false"}
    trial = run(tmp_path, thorough_python, "def setup():\n    return lambda: None\n", variables)
    assert trial.one("hello")["environment"] == {"TF_FORCE_GPU_ALLOW_GROWTH": "false"}


def test_a_command_with_a_gpu(thorough_python: str, libraries: dict[str, Path], state: State, tmp_path: Path) -> None:
    command = ["sh", "-c", "for i in 1 2 3 4; do echo step; sleep 0.1; done"]
    variables = environment(libraries["middle"], state())
    trial = run(tmp_path, thorough_python, None, variables, command=command, step_pattern="step", looks=[2, 4])
    assert trial.done["end"] == "completed", trial.done
    assert [message["look"]["gpu_kib"] for message in trial.all("look")] == [1000, 1000]
    assert trial.column("gpu_kib")[-1] == 1000
