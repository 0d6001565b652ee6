"""A process host with a GPU: the driver's library is a stand-in, found in the same way as the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from harness.errors import InfrastructureError
from tests.contract.world import World, quiet

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
