"""Frameworks' pools, queried through modules with the interface of the real ones: TensorFlow and torch take GBs to
install.
"""

import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.agent.probes import gpu_pools
from tests.agent.driver import run

MIB = 1 << 20


class Cuda:
    """torch.cuda in a process that computes on two GPUs."""

    def __init__(self, *, initialized: bool = True) -> None:
        self._initialized = initialized
        self.asked = 0

    def is_initialized(self) -> bool:
        return self._initialized

    def device_count(self) -> int:
        self.asked += 1
        return 2

    def memory_allocated(self, device: int) -> int:
        return (device + 1) * MIB

    def max_memory_allocated(self, device: int) -> int:
        return 15 * MIB

    def memory_reserved(self, device: int) -> int:
        return 20 * MIB


class Cuda13(Cuda):
    """torch.cuda before 1.4, which calls reserved memory cached."""

    memory_cached = Cuda.memory_reserved
    memory_reserved = property()  # type: ignore[assignment]


def torch(**options: Any) -> dict[str, Any]:
    return {"torch": SimpleNamespace(cuda=Cuda(**options))}


def tensorflow2(*, started: bool = True) -> dict[str, Any]:
    experimental = SimpleNamespace(get_memory_info={"GPU:0": {"current": 7 * MIB, "peak": 9 * MIB}}.__getitem__)
    config = SimpleNamespace(experimental=experimental, list_logical_devices={"GPU": ["one"]}.__getitem__)
    context = SimpleNamespace(_context=SimpleNamespace(_initialized=started))
    return {"tensorflow": SimpleNamespace(config=config), "tensorflow.python.eager.context": context}


def jax(**stats: int) -> dict[str, Any]:
    gpu = SimpleNamespace(platform="gpu", memory_stats=lambda: {"bytes_in_use": 3 * MIB, **stats})
    host = SimpleNamespace(platform="cpu", memory_stats=lambda: None)
    backends = {
        "cpu": SimpleNamespace(local_devices=lambda: [host]),
        "cuda": SimpleNamespace(local_devices=lambda: [gpu]),
    }
    return {"jax": SimpleNamespace(), "jax._src.xla_bridge": SimpleNamespace(_backends=backends)}


class Context:
    """A context manager for anything that is used with `with`."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Graph:
    def as_default(self) -> Context:
        return Context()

    def device(self, name: str) -> Context:
        assert name == "/gpu:0"
        return Context()


class Tensorflow1:
    """TensorFlow 1.15 with tf.contrib.memory_stats imported, which counts its sessions."""

    Graph = Graph

    def __init__(self, *, gpu: bool = True) -> None:
        self.sessions: list[Any] = []
        self._gpu = gpu

    def ConfigProto(self) -> Any:  # noqa: N802 - the name in TensorFlow
        return SimpleNamespace(gpu_options=SimpleNamespace(allow_growth=False))

    def Session(self, graph: Graph, config: Any) -> Any:  # noqa: N802 - the name in TensorFlow
        assert config.gpu_options.allow_growth
        if not self._gpu:
            raise RuntimeError("Cannot assign a device for operation BytesInUse")
        self.sessions.append(graph)
        return SimpleNamespace(run=lambda operation: operation)

    def modules(self) -> dict[str, Any]:
        operations = SimpleNamespace(BytesInUse=lambda: 5 * MIB)
        return {"tensorflow": self, gpu_pools.Tensorflow1.MODULE: operations}


def asked(modules: dict[str, Any], *, in_use: bool = True) -> gpu_pools.Pools:
    return gpu_pools.Pools(modules, lambda: in_use)


@pytest.mark.parametrize(
    ("modules", "used_mib", "reserved_mib", "peak_mib"),
    [
        (torch(), 3, 40, 30),
        ({"torch": SimpleNamespace(cuda=Cuda13())}, 3, 40, 30),
        (tensorflow2(), 7, None, 9),
        (jax(), 3, None, None),
        (jax(pool_bytes=64 * MIB, peak_bytes_in_use=8 * MIB), 3, 64, 8),
        (Tensorflow1().modules(), 5, None, None),
        ({**torch(), **tensorflow2()}, 10, 40, 39),
    ],
    ids=["torch", "torch before 1.4", "tensorflow 2", "jax", "jax with a pool", "tensorflow 1", "two of them"],
)
def test_what_a_framework_holds(
    modules: dict[str, Any], used_mib: float, reserved_mib: float | None, peak_mib: float | None
) -> None:
    told = {"gpu_pool_kib": used_mib, "gpu_reserved_kib": reserved_mib, "gpu_pool_peak_kib": peak_mib}
    assert asked(modules).look() == {name: mib * 1024 for name, mib in told.items() if mib is not None}


def test_nothing_that_has_not_started_is_asked() -> None:
    """A query would start the framework, and take the GPU's memory in a scenario that never used it."""
    unused = torch(initialized=False)
    for modules in (unused, tensorflow2(started=False), {"jax": SimpleNamespace(), "tensorflow": SimpleNamespace()}):
        assert asked(modules).look() == {}
        assert asked(modules).step_reader() is None
    assert unused["torch"].cuda.asked == 0

    running = torch()
    assert asked(running, in_use=False).look() == {}
    assert asked(running, in_use=False).step_reader() is None
    assert running["torch"].cuda.asked == 0


def test_a_framework_that_raises_is_silent_and_the_others_are_heard() -> None:
    broken = SimpleNamespace(is_initialized=lambda: 1 / 0)
    modules = {"torch": SimpleNamespace(cuda=broken), **tensorflow2()}
    read = asked(modules).step_reader()

    assert asked(modules).look() == {"gpu_pool_kib": 7 * 1024, "gpu_pool_peak_kib": 9 * 1024}
    assert read is not None
    assert read() == 7 * 1024
    modules["tensorflow"].config = None
    assert math.isnan(read())


def test_tensorflow_1_gets_one_session_and_is_never_asked_between_steps() -> None:
    tensorflow = Tensorflow1()
    pool = asked(tensorflow.modules())

    assert pool.step_reader() is None
    assert [pool.look(), pool.look()] == [{"gpu_pool_kib": 5 * 1024}] * 2
    assert len(tensorflow.sessions) == 1


def test_tensorflow_1_without_a_gpu_is_tried_once() -> None:
    tensorflow = Tensorflow1(gpu=False)
    pool = asked(tensorflow.modules())
    assert pool.look() == pool.look() == {}
    assert tensorflow.sessions == []


def test_a_gpu_is_in_use_when_its_device_is_open(tmp_path: Path) -> None:
    (tmp_path / "3").symlink_to("/dev/nvidiactl")
    (tmp_path / "4").write_text("no link")
    assert not gpu_pools.cuda_in_use(str(tmp_path))
    (tmp_path / "5").symlink_to("/dev/nvidia0")
    assert gpu_pools.cuda_in_use(str(tmp_path))
    assert not gpu_pools.cuda_in_use(str(tmp_path / "none"))


ASK = """
import sys
sys.path.insert(0, {folder!r})
import {framework}
from agent.probes import pools
print(pools.Pools(sys.modules, lambda: True).look())
"""


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_a_real_framework_that_has_not_started_a_gpu_stays_so(framework: str) -> None:
    """Runs only where a framework is installed, because they are too large to install for this test."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    folder = str(Path(gpu_pools.__file__).parents[2])
    code = ASK.format(folder=folder, framework=framework)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert told.stdout.splitlines()[-1] == "{}"


SCENARIO = """
    import os, sys, types

    class Cuda(object):
        held = 0

        def is_initialized(self):
            return True

        def device_count(self):
            return 1

        def memory_allocated(self, device):
            return self.held

        def max_memory_allocated(self, device):
            return 1 << 20

        def memory_reserved(self, device):
            return 2 << 20

    def setup(fault):
        torch = sys.modules["torch"] = types.ModuleType("torch")
        torch.cuda = cuda = Cuda()
        sys.modules["harness_agent.probes.gpu_pools"].DEVICE_FILE = __import__("re").compile("/dev/null")

        def step():
            cuda.held += 1024
            if fault and cuda.held == 20 << 10:
                cuda.memory_allocated = None
        return step
"""


@pytest.mark.parametrize("fault", [False, True])
def test_a_pool_in_a_whole_trial(thorough_python: str, tmp_path: Path, fault: bool) -> None:
    """/dev/null, which is open as stdin, stands for the GPU's device."""
    told = run(tmp_path, thorough_python, SCENARIO, params={"fault": fault}, variables={"LD_LIBRARY_PATH": os.devnull})
    assert told.done["end"] == "completed", told.done
    assert "gpu pool" in told.one("ready")["probes"]
    looks = [message["look"].get("gpu_pool_kib") for message in told.all("look")]
    sampled = [(row, value) for row, value in enumerate(told.column("gpu_pool_kib"), 1) if value is not None]
    assert looks == ([None, None] if fault else [50, 100])
    assert sampled[0] == (2, 2), "from the step after the first on, when the framework is known"
    assert all(row == value for row, value in sampled)
