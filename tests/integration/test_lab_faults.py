"""Faults of hosts, GPUs and registries in the middle of a sweep: each is reported as what it is, never as a bad
version.

The engines of the lab are real; the GPUs and their faults are doubles.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest

from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, selected, sweep
from harness.model import RunResult
from harness.report.terminal.progress import plain_progress
from harness.run.hosts import cell_launcher
from tests.integration.conftest import Harness
from tests.lab.proxy import Fault, Way, way_to
from tests.lab.running import Lab
from tests.players.world import BASE
from tests.registry.held import Held, anonymous, held
from tests.waiting import until

pytestmark = pytest.mark.docker
FAULTS = Path(__file__).with_name("gpu_faults.py")
MATRIX = """\
version: 1
series:
  s: {{images: {{one: "{base}"}}}}
hosts:
{hosts}
scenarios:
  quiet: {{script: {script}, params: {{fault: {faults}}}, steps: {{first: 100, budget: 200}}, timeout: 1m}}
trials: {{least: {trials}, most: {trials}}}
"""


@pytest.fixture
def tried(lab: Lab, harness: Harness) -> Iterator[Harness]:
    """Return `harness` on the lab's hosts, whose GPUs a test may change."""
    before = {daemon: daemon.data.read_text() for daemon in (lab.old, lab.new)}
    harness.environ.update(HOME=str(lab.sshd.home))
    yield harness
    for daemon, text in before.items():
        daemon.data.write_text(text)


@pytest.fixture
def registry(lab: Lab, tmp_path: Path) -> Iterator[Held]:
    if shutil.which("docker-registry") is None:
        missing = "no docker-registry on the PATH; tools/registry installs it"
        pytest.fail(missing) if os.environ.get("HARNESS_REQUIRE_REGISTRY") == "1" else pytest.skip(missing)
    with closing(docker.from_env()) as client, held(tmp_path, auth=anonymous(tmp_path), client=client) as found:
        yield found


def matrix(lab: Lab, *, old: str = "", new: str = "", trials: int = 1, faults: str = "none") -> str:
    engines = {"old": (lab.sshd.address, old), "new": (lab.tcp_address, new)}
    hosts = [f'  {name}: {{engine: "{address}", gpus: {gpus}}}' for name, (address, gpus) in engines.items() if gpus]
    return MATRIX.format(base=BASE, hosts="\n".join(hosts), script=FAULTS, trials=trials, faults=faults)


def cells(harness: Harness) -> dict[str, tuple[str, str]]:
    """Return `host/GPU fault` -> (verdict, why)."""
    found = harness.summary()["cells"]
    return {f"{cell['host']}/{cell['gpu']} {cell['params']['fault']}": (cell["verdict"], cell["why"]) for cell in found}


NOT_ALL_DECIDED = 4
"""One second of steps is too short for GPU memory, which is sampled at most every 50 ms."""


def blind(harness: Harness) -> set[str]:
    """Return the signals that could not be decided; each because of too few samples of a GPU."""
    signals = [item for cell in harness.summary()["cells"] for item in cell["signals"].items()]
    found = {name: told["why"] for name, told in signals if told["seen"] == "blind"}
    assert all(why.startswith("the GPU's memory: too few samples to judge: ") for why in found.values()), found
    return set(found)


def test_three_hosts_with_cards_of_all_kinds(lab: Lab, tried: Harness) -> None:
    """Two cards with the same name, a card divided in two, one by part of its name and one by part of its UUID, and no
    card.
    """
    (card,) = json.loads(lab.old.data.read_text())["gpus"]
    replicate = {**card, "uuid": "GPU-30900000-2222-2222-3333-444444444444"}
    cut = {**card, "uuid": "GPU-a100", "name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0", "mig": 1,
           "instances": 7, "mig0.uuid": "MIG-1", "mig0.name": "A100 MIG 1g.5gb", "mig0.total": 5 << 30, "mig0.used": 0,
           "mig1.uuid": "MIG-2", "mig1.name": "A100 MIG 1g.5gb", "mig1.total": 5 << 30, "mig1.used": 0}  # fmt: skip
    lab.old.set_gpus(gpus=[card, replicate, cut])
    lab.new.set_gpus(gpus=[{**card, "uuid": "GPU-beef-1", "name": "NVIDIA L40S"}, {**card, "uuid": "GPU-cafe-2"}])
    text = matrix(lab, old="each", new="[l40, GPU-cafe]").replace("hosts:\n", "hosts:\n  bare: {engine: docker}\n")
    ended = tried.run_here("sweep", tried.write(text))
    assert (ended.code, blind(tried)) == (NOT_ALL_DECIDED, {"memory"}), ended.err
    found = cells(tried)
    assert {verdict for verdict, _ in found.values()} == {"flat"}
    assert [where.removesuffix(" none") for where in found] == [
        "bare/None", "old/RTX 3090 GPU-30900000-1111-2222-3333-444444444444",
        "old/RTX 3090 GPU-30900000-2222-2222-3333-444444444444", "old/A100 MIG 1g.5gb MIG-1",
        "old/A100 MIG 1g.5gb MIG-2", "new/L40S", "new/RTX 3090",
    ]  # fmt: skip


def test_a_host_without_a_card_and_one_whose_hook_fails_are_told_and_take_only_themselves(
    lab: Lab, tried: Harness
) -> None:
    lab.old.set_gpus(gpus=[])
    lab.new.set_gpus(fail="initialization error: nvml error: driver not loaded")
    text = matrix(lab, old="all", new="each").replace("hosts:\n", "hosts:\n  bare: {engine: docker}\n")
    ended = tried.run_here("sweep", tried.write(text))
    assert ended.code == 3, ended.err
    found = cells(tried)
    assert found["bare/None none"][0] == "flat"
    assert "containers with GPUs start there, but see no GPU" in found["old/all none"][1]
    verdict, why = found["new/each none"]
    assert verdict == "untested"
    assert "a container with GPUs does not start: " in why
    assert "driver not loaded" in why


def test_what_is_the_machines_fault_is_never_bad(lab: Lab, tried: Harness) -> None:
    """An Xid that breaks a trial, an image that the toolkit refuses, and an image whose entrypoint
    refuses the driver.
    """
    name = tried.write(matrix(lab, new="each", faults="[none, xid, driver]"))
    ended = tried.run_here("sweep", name)
    assert ended.code == 3, ended.err
    found = {where.split()[-1]: told for where, told in cells(tried).items()}
    assert found["none"][0] == "flat"
    assert found["xid"][0] == "untested"
    assert "the driver reported Xid 79, a fault of the GPU" in found["xid"][1]
    assert found["driver"] == ("incompatible", "needs driver 560.35 or later, but the host has 535.104.05")


def test_an_image_that_the_toolkit_refuses_is_incompatible(lab: Lab, tried: Harness) -> None:
    """Only the refusal says what the image needs."""
    one = f'one: "{BASE}"}}'
    text = matrix(lab, new="each").replace(one, f"{one}, environment: [NVIDIA_REQUIRE_CUDA=cuda>=12.9]")
    ended = tried.run_here("sweep", tried.write(text))
    ((verdict, why),) = cells(tried).values()
    assert (ended.code, verdict) == (3, "incompatible"), ended.out
    assert why == "the image requires cuda>=12.9, but the host's driver is older"


def test_a_host_that_disappears_is_finished_by_the_next_sweep(lab: Lab, tried: Harness) -> None:
    name = tried.write(matrix(lab, old="each", new="each", trials=2, faults="slow"))
    running = tried.start("sweep", name)
    try:
        assert until(lambda: any("new" in path.name for path in tried.trial_files()), seconds=120)
        lab.new.kill()
        _, said = running.communicate(timeout=120)
    finally:
        lab.new.stop()
        lab.new.start(json.loads(lab.new.data.read_text()))
    assert running.returncode == 3, said
    assert "the connection to the engine was lost" in said or "the engine does not answer" in said
    assert cells(tried)["old/RTX 3090 slow"][0] == "flat"
    assert cells(tried)["new/RTX 4090 slow"][0] in ("untested", "inconclusive")
    again = tried.run_here("sweep", name)
    assert (again.code, blind(tried)) == (NOT_ALL_DECIDED, {"memory"}), again.err
    log = (tried.folder / "reports/matrix/latest/decisions.jsonl").read_text().splitlines()
    assert {one["lane"] for one in map(json.loads, log) if one["launch"]} == {"new/RTX 4090"}
    assert {verdict for verdict, _ in cells(tried).values()} == {"flat"}


def test_two_sweeps_on_one_host_wait_for_each_other_and_say_so(lab: Lab, tried: Harness) -> None:
    name = tried.write(matrix(lab, new="each", trials=3, faults="slow"))
    first = tried.start("sweep", name, "--out", "first")
    assert until(lambda: any(tried.folder.glob("first/*/*/trials/[!.]*")), seconds=120)
    second = tried.run_here("sweep", name, "--out", "second", "--trials", "1:1")
    first.communicate(timeout=60)
    assert (first.returncode, second.code) == (NOT_ALL_DECIDED, NOT_ALL_DECIDED), second.err
    assert f"process {first.pid}, since" in second.err
    assert "this host is in use by" in second.err
    (one,), (other,) = (sorted(tried.folder.glob(f"{name}/matrix/2*/trials")) for name in ("first", "second"))
    ended_s = max(path.stat().st_mtime for path in one.iterdir())
    assert all(path.stat().st_mtime > ended_s for path in other.iterdir())


def test_a_throttled_card_is_told_and_tried_again_after_a_pause(
    lab: Lab, tried: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_launcher, "PAUSE_S", 0.1)
    (card,) = json.loads(lab.new.data.read_text())["gpus"]
    lab.new.set_gpus(gpus=[{**card, "reasons": 0x20, "clock": 900, "temperature": 91}])
    result = swept(tried, matrix(lab, new="each", trials=2, faults="slow"))
    (cell,) = result.cells
    assert cell.verdict.verdict not in ("leak", "slowdown", "crash")
    assert all("held down by heat" in trial.conditions.disturbed for trial in cell.trials)
    assert all("91 °C" in trial.conditions.disturbed for trial in cell.trials)


def swept(harness: Harness, text: str) -> RunResult:
    """Run the sweep in this process, to change what only a test wants to change."""
    matrix_path, options = harness.folder / harness.write(text), SweepOptions(out=harness.folder / "reports", seed=1)
    environ = {**os.environ, **harness.environ}
    with plain_progress(sys.stderr) as watching:
        context = RunContext(environ=environ, progress=watching, stopped=threading.Event())
        return sweep(selected(matrix_path, options, environ), options, context)[0]


def test_registries_that_refuse_are_busy_or_break_off(lab: Lab, tried: Harness, registry: Held) -> None:
    """401 is reported immediately; after one 429, or half a layer, the pull is repeated. The rest
    of the sweep goes on.
    """
    faults: dict[str, tuple[Fault, int]] = {"denied": ("denied", 99), "busy": ("busy", 1), "broken": ("broken", 1)}
    for name in faults:
        registry.push(name, "1", files={name: secrets.token_hex(100_000)})
    way = Way(behind=registry.host, faults=faults)
    with way_to(way) as address:
        series = [f'  {name}: {{images: {{one: "{address}/{name}:1"}}}}' for name in faults]
        text = matrix(lab, new="each").replace("hosts:", "\n".join([*series, "hosts:"]))
        ended = tried.run_here("sweep", tried.write(text))
    assert ended.code == 3, ended.err
    found = {cell["series"]: (cell["verdict"], cell["why"]) for cell in tried.summary()["cells"]}
    assert found["s"][0] == "flat"
    assert found["denied"][0] == "untested"
    assert "denied:1: cannot be pulled: " in found["denied"][1]
    assert "log in with `docker login` if it is private" in found["denied"][1]
    assert "\n" not in found["denied"][1]
    assert (way.struck["busy"], way.struck["broken"]) == (1, 1)
    for name in ("busy", "broken"):  # pulled, although it contains nothing that could run
        assert found[name][0] == "untested"
        assert "no python3 or python on this image's PATH" in found[name][1]


CHANGED = """\
import ctypes
import os


def driver():
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    nvml.nvmlInit_v2()
    text = ctypes.create_string_buffer(80)
    nvml.nvmlSystemGetDriverVersion(text, 80)
    return text.value.decode()


def setup():
    kept, files, is_new, leaves_open = [], [], os.environ["VERSION"] == "4", driver().startswith("580")

    def step():
        if is_new:
            kept.append(b"x" * 32768)
        if leaves_open and len(files) < 500:
            files.append(open("/dev/null"))

    return step
"""
OF_CHANGED = """\
version: 1
series:
  s: {{images: {{{images}}}, environment: {{VERSION: "{{version}}"}}}}
hosts: {{new: {{engine: "{engine}", gpus: [4090]}}}}
scenarios:
  kept: {{script: changed.py, steps: {{first: 200, budget: 400}}, limits: {{step_time: none, peak_memory: none}}}}
trials: {{least: 2, most: 2}}
"""


def test_decide_tells_a_new_driver_from_an_image_of_the_same_day(lab: Lab, tried: Harness) -> None:
    """`no earlier measurement still fits` was the answer on the day on which the driver and the image changed."""
    (tried.folder / "changed.py").write_text(CHANGED)

    def write(*versions: str) -> str:
        images = ", ".join(f'"{version}": "{BASE}"' for version in versions)
        return tried.write(OF_CHANGED.format(images=images, engine=lab.tcp_address))

    assert tried.run_here("sweep", write("1", "2", "3")).code in (0, NOT_ALL_DECIDED)
    lab.new.set_gpus(driver="580.65.06")
    ended = tried.run_here("sweep", write("1", "2", "3", "4"), "--decide")
    assert ended.code == 1, ended.err
    assert "to be measured on the hosts as they are now: s 1, s 3, s 4" in ended.err
    findings = [(one["metric"], one.get("first_worse")) for one in tried.summary()["findings"]]
    assert ("memory", "4") in findings
    told = " ".join(ended.out.split())
    since = "in both cells on host new since driver 580.65.06, instead of driver 535.104.05; not the images' fault"
    assert since in told, told
