"""A real kill by the kernel, in a memory cgroup of the test's own."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.driver import Agent, pack

PLANTED = Path(__file__).parents[2] / "scenarios" / "planted.py"
MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """64 MiB to live in; skipped where one may not make cgroups (version 1, which is easy to nest)."""
    folder = MEMORY / f"harness-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error.strerror}")
    (folder / "memory.limit_in_bytes").write_text(str(64 << 20))
    yield folder
    folder.rmdir()


def test_the_kernels_kill_is_an_oom_and_spares_the_supervisor(tmp_path: Path, small_cgroup: Path) -> None:
    pack(tmp_path, PLANTED, params={"fault": "oom"}, looks=[20, 100])
    enter = ("sh", "-c", f'echo $$ > {small_cgroup}/cgroup.procs; exec "$@"', "sh")
    with Agent(tmp_path, python=sys.executable, enter=enter) as agent:
        told = agent.finish()

    assert told.one("hello")["cgroup"] == {"version": 1, "limit_bytes": 64 << 20}
    assert (told.done["end"], told.done["signal"], told.done["last_step"]) == ("oom", 9, 49)
    assert told.done["message"] == "step 50: out of memory: killed by the kernel"
    assert told.column("step") == list(range(1, 50))
