"""What this machine can refuse the process engine: reported in one line with the remedy, never as a traceback."""

from __future__ import annotations

import contextlib
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harness.errors import InfrastructureError
from harness.model import Steps, Variant
from harness.run.engine import LaunchRequest
from harness.run.process import cgroups
from harness.run.process.engine import ProcessEngine
from harness.run.trial.payload import pack
from tests.players.world import World, host, installed, quiet


def refused(world: World, launch: LaunchRequest) -> str:
    with pytest.raises(InfrastructureError) as caught, world.engine.launch(launch):
        pytest.fail("it was started")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_files(launch: LaunchRequest, files: dict[str, bytes]) -> LaunchRequest:
    return replace(launch, payload=replace(launch.payload, files={**launch.payload.files, **files}))


def test_a_temporary_folder_that_cannot_be_written(
    process: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    launch = process.launch("quiet")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    assert re.match(
        r".*file/harness-trial-.*: Not a directory; free some space there, or set TMPDIR", refused(process, launch)
    )


@pytest.mark.parametrize("path", ["../outside.txt", "scenario/../../outside.txt", "/tmp/outside.txt", "."])
def test_no_file_of_a_payload_leaves_the_trials_folder(in_environments: World, path: str) -> None:
    said = refused(in_environments, with_files(in_environments.launch("quiet"), {path: b"x"}))
    assert said.startswith(f"{path}: leads out of the trial's folder")
    assert not (Path(tempfile.gettempdir()) / "outside.txt").exists()


def test_a_file_where_a_folder_must_be(process: World) -> None:
    launch = with_files(process.launch("quiet"), {"scenario/data": b"", "scenario/data/x": b""})
    assert "scenario/data: " in refused(process, launch)


@pytest.mark.parametrize(
    ("name", "value"), [("A", "nul \0 inside"), ("A=B", "x"), ("A", "x" * (1 << 20))], ids=["nul", "name", "long"]
)
def test_an_environment_that_the_system_does_not_take(in_environments: World, name: str, value: str) -> None:
    try:
        trial = in_environments.trial("quiet", environment=((name, value),), timeout_s=20.0)
        said, end = trial.message, trial.end
    except InfrastructureError as error:
        said, end = str(error), "infrastructure"
    assert end == "infrastructure"
    assert re.search(r"the agent cannot be started: .+; see `environment:`", said)


def test_a_limit_below_what_an_interpreter_needs_says_nothing_about_the_image(process: World) -> None:
    trial = process.trial("quiet", memory_bytes=1 << 20)
    assert trial.end in ("oom", "infrastructure"), trial
    assert not any("start.py" in " ".join(child.cmdline()) for child in psutil.Process().children(recursive=True))


SPAWNS = """
import mmap, multiprocessing, os, time
if __name__ == "__main__":
    own = "/dev/shm/own-%d" % os.getpid()
    file = open(own, "w+b")
    file.truncate(9)
    shared = mmap.mmap(file.fileno(), 9)
    context = multiprocessing.get_context("spawn")
    kept = [context.Semaphore() for _ in range(9)]
    worker = context.Process(target=time.sleep, args=(600,))
    worker.start()
    with open("TOLD.new", "w") as told:
        told.write("\\n".join([own] + ["/dev/shm/sem." + each._semlock.name.lstrip("/") for each in kept]))
    os.rename("TOLD.new", "TOLD")
    for number in range(10000):
        print("step", number, flush=True)
        time.sleep(0.01)
"""


@pytest.mark.kills
@pytest.mark.parametrize("what", ["interrupted", "killed", "killed without a cgroup"])
def test_the_semaphores_of_a_killed_agent_are_removed(
    process: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Each interrupted launch of a program with workers left semaphores in /dev/shm for ever, and other files, such as
    those of NCCL, which only the agent knows."""
    told = tmp_path / "told"
    (tmp_path / "spawns.py").write_text(SPAWNS.replace("TOLD", str(told)))
    launch = process.launch("quiet", steps=Steps(first=5000, budget=5000))
    scenario = replace(launch.scenario, script=None, program=tmp_path / "spawns.py", files=())
    looks = 0
    if what == "killed without a cgroup":
        monkeypatch.setattr(cgroups, "create", lambda *of, **more: None)

    def kill(step: int, rss_kib: float | None) -> None:
        nonlocal looks
        looks += told.exists()
        if looks == 1 and what != "interrupted":
            assert all(map(Path.exists, shared_by(told))), "or nothing is tested"
            next(each for each in psutil.Process().children() if "start.py" in " ".join(each.cmdline())).kill()
        elif looks > 1:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        payload = pack(Variant(scenario=scenario))
        process.run(replace(launch, scenario=scenario, payload=payload), on_step=kill)
    own, *semaphores = shared_by(told)
    assert len(semaphores) == 9
    assert not list(filter(Path.exists, semaphores))
    assert what != "interrupted" or not own.exists()
    own.unlink(missing_ok=True)


def shared_by(told: Path) -> list[Path]:
    """Return the files in shared memory that the program told."""
    return [Path(line) for line in told.read_text().split("\n")]


def test_an_environment_removed_since_it_was_prepared(tmp_path: Path) -> None:
    environ = {"HARNESS_CACHE": str(tmp_path)}
    world = World(kind="process", engine=ProcessEngine(host("process"), environ=environ), environ=environ)
    prepared = world.engine.prepare(installed(), quiet)
    said: list[str] = []
    with world.engine.lease(quiet, lambda: False):
        assert world.engine.remove_images(said.append) == (), "a sweep between two launches has none in use"
    assert said[0].startswith("no environment removed: another harness is running here (")
    assert world.engine.remove_images(quiet) == (str(Path(prepared.reference).parents[1]),)
    assert "another run removed this environment" in refused(world, world.launch("quiet", prepared=prepared))
