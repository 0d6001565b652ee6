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


def test_a_child_that_the_kernel_kills_is_told_although_the_command_ends_well(
    tmp_path: Path, small_cgroup: Path
) -> None:
    """A worker of a data loader was killed, the program went on with the others, and nothing said so."""
    grows = f"'{sys.executable}' -c 'held = bytearray(200 << 20)' 2>/dev/null || true"
    entered = ("sh", "-c", f'echo $$ > {small_cgroup}/cgroup.procs; exec "$@"', "sh")
    told = run(tmp_path, sys.executable, None, command=["sh", "-c", grows], judge_exit=True, enter=entered)
    assert told.done["end"] == "completed", told.done
    assert told.done["output_tail"].splitlines()[-1] == (
        "harness: a child process was killed by the kernel: out of memory"
    )


def test_an_orphan_that_dies_by_a_signal_is_told(tmp_path: Path) -> None:
    """Nobody reads the exit code of a process whose parent has gone."""
    orphan = f"('{sys.executable}' -c 'import os, time; time.sleep(0.3); os.abort()' &) 2>/dev/null; sleep 1"
    told = run(tmp_path, sys.executable, None, command=["sh", "-c", orphan], judge_exit=True)
    assert told.done["end"] == "completed", told.done
    assert told.done["output_tail"] == "harness: a child process was killed by SIGABRT\n"


def test_memory_that_others_used_up_accuses_no_version(tmp_path: Path, small_cgroup: Path) -> None:
    """The kernel kills the scenario first, whichever process took the memory: another program's leak made a good
    version an OOM.
    """
    (small_cgroup / "trial").mkdir()
    (small_cgroup / "trial" / "memory.limit_in_bytes").write_text(str(1 << 30))
    told = run_in(small_cgroup / "trial", tmp_path)
    assert (told.done["end"], told.done["starved"], told.done["signal"]) == ("infrastructure", True, 9)
    assert told.done["message"].startswith("the machine's memory ran out, although the trial was below its own")
