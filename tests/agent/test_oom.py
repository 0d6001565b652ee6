"""A real kill by the kernel, in a memory cgroup made for the test."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.driver import Told, run

MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """Yield a cgroup with 64 MiB; skip if this user may not make cgroups (only version 1, which is easy to nest)."""
    folder = MEMORY / f"harness-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error.strerror}")
    for limit in filter(Path.exists, (folder / "memory.limit_in_bytes", folder / "memory.memsw.limit_in_bytes")):
        limit.write_text(str(64 << 20))  # both limits, as the engines set them: Linux then counts no failed request
    yield folder
    for inner in (*filter(Path.is_dir, folder.iterdir()), folder):
        inner.rmdir()


def run_in(cgroup: Path, root: Path) -> Told:
    entered = ("sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "sh")
    return run(root, sys.executable, params={"fault": "oom"}, looks=[20, 100], enter=entered)


def test_the_kernels_kill_is_an_oom_and_spares_the_supervisor(tmp_path: Path, small_cgroup: Path) -> None:
    told = run_in(small_cgroup, tmp_path)
    assert told.one("hello")["cgroup"] == {"version": 1, "limit_bytes": 64 << 20}
    assert (told.done["end"], told.done["signal"], told.done["last_step"]) == ("oom", 9, 49)
    assert told.done["message"] == "step 50: out of memory: killed by the kernel"
    assert told.column("step") == list(range(1, 50))


def test_memory_that_others_used_up_accuses_no_version(tmp_path: Path, small_cgroup: Path) -> None:
    """The kernel kills the scenario first, whichever process took the memory: another program's leak made a good
    version an OOM.
    """
    (small_cgroup / "trial").mkdir()
    (small_cgroup / "trial" / "memory.limit_in_bytes").write_text(str(1 << 30))
    told = run_in(small_cgroup / "trial", tmp_path)
    assert (told.done["end"], told.done["starved"], told.done["signal"]) == ("infrastructure", True, 9)
    assert told.done["message"].startswith("the machine's memory ran out, although the trial was below its own")
