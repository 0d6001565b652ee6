"""A program that compiles on its first run, and is wrong with what it compiled: found, and told as that."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from harness.run.owners import CACHE_PREFIX
from tests.integration.conftest import DOCKER_AT_NIGHT, Harness
from tests.waiting import until

pytestmark = pytest.mark.index
PROGRAM = """\
import os, sys, six

kernels = os.path.expanduser("~/.cache/kernels")
new, is_warm = six.__version__ == "1.16.0", os.path.exists(kernels + "/of")
if is_warm:
    with open(kernels + "/of") as file:
        assert file.read() == six.__version__, "another version left this"
if new and is_warm and sys.argv[1] == "stale":
    raise RuntimeError("stale kernel")
if new and sys.argv[1] == "broken":
    raise RuntimeError("no kernel")
if not is_warm:
    os.makedirs(kernels, exist_ok=True)
    with open(kernels + "/of", "w") as file:
        file.write(six.__version__)
with open(kernels + "/launches", "a") as file:
    file.write("launch\\n")
with open(kernels + "/launches") as file:
    print("launches:", len(file.readlines()))
"""
MATRIX = """\
version: 1
series:
  six:
    install: ["six=={{version}}"]
    versions: ["1.15.0", "1.16.0"]
hosts:
  here: {{engine: {engine}}}
scenarios:
  warm: &kernels
    command: [python, kernels.py, stale]
    files: [kernels.py]
    judge: exit
    mounts: [{{cache: kernels, at: ~/.cache/kernels}}]
  cold: {{<<: *kernels, mounts: [{{cache: kernels, at: ~/.cache/kernels, start: cold}}]}}
  broken: {{<<: *kernels, command: [python, kernels.py, broken]}}
trials: {{least: 2, most: 4}}
"""


@pytest.mark.parametrize("engine", DOCKER_AT_NIGHT)
def test_a_fault_that_shows_only_with_a_warm_cache_is_told_as_that(harness: Harness, engine: str) -> None:
    (harness.folder / "kernels.py").write_text(PROGRAM)
    ended = harness.run_here("sweep", harness.write(MATRIX.format(engine=engine)))
    assert ended.code == 1, ended.err
    assert "warm crashes since 1.16.0, with a warm cache" in ended.out
    assert "broken crashes since 1.16.0; cold" in ended.out, "it crashes with a cold cache, too"
    if engine == "process":
        script = harness.run_here("repro", "latest", "1.16.0", "warm").out
        again = subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=120, check=False)
        assert (again.returncode, "stale kernel" in again.stdout) == (1, True), "it began with a cold cache"
    cells = {(cell["scenario"], cell["image"]): cell for cell in harness.summary()["cells"]}
    assert cells["cold", "1.16.0"]["verdict"] == "flat"
    assert "(in the launch that fills its warm cache" in cells["broken", "1.16.0"]["why"]


@pytest.mark.kills
def test_ctrl_c_removes_the_caches_of_workers_that_share_a_host(harness: Harness, tmp_path: Path) -> None:
    """Each interrupted sweep left gigabytes until the next one."""
    (harness.folder / "kernels.py").write_text(f"{PROGRAM}import time\ntime.sleep(60 if is_warm else 0)\n")
    (temporary := tmp_path / "tmp").mkdir()
    harness.environ["TMPDIR"] = str(temporary)
    matrix = MATRIX.replace("{{engine: {engine}}}", "{{engine: {engine}, parallel: 2}}").partition("  cold:")[0]
    process = harness.start("sweep", harness.write(matrix.format(engine="process")))
    kept = lambda: list(temporary.glob(f"{CACHE_PREFIX}*/of"))  # noqa: E731
    assert until(kept, seconds=60)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert list(temporary.glob(f"{CACHE_PREFIX}*")) == []
