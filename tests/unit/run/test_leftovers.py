"""What dead runs left behind: removed if it is ours, whatever else happens to the folder, which all users share."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import harness
from harness.agent import killing
from harness.errors import InfrastructureError, Interrupted
from harness.run import leases, owners
from harness.run.leases import announced
from harness.run.process import cgroups
from tests.dead import dead_name

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")


def removed(folder: Path) -> int:
    return cgroups.remove_leftovers(folder, root=folder)


def test_folders_of_the_dead_go_and_all_others_stay(tmp_path: Path) -> None:
    prefixes = (owners.PREFIX, owners.AGENT_PREFIX, owners.FILES_PREFIX)
    living = {owners.new_name(prefix) for prefix in prefixes}
    assert all(len(name) <= 43 for name in living), "no Unix socket fits below a trial's folder"
    kept = {*living, f"{owners.PREFIX}other_1_1_abcd", f"{owners.PREFIX}notes", "unrelated"}
    for name in (*(dead_name(prefix=prefix) for prefix in prefixes), *kept):
        (tmp_path / name).mkdir()
    assert removed(tmp_path) == 3
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_the_files_of_a_killed_command_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who killed `harness narrow` kept a copy of the run's scripts in /tmp, which no command listed or
    removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = (
        "import os; from harness.run import owners\n"
        "with owners.folder_for_files() as folder: (folder / 'script.py').write_text(''); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", command], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    with owners.folder_for_files() as living:
        [left] = cgroups.leftovers(tmp_path, root=tmp_path)
        assert removed(tmp_path) == 1
        assert list(tmp_path.iterdir()) == [living]
    assert left.startswith(owners.FILES_PREFIX)
    assert not living.exists()


def test_every_temporary_folder_names_its_owner() -> None:
    """If a command is killed, nothing removes a folder that names no owner."""
    root = Path(harness.__file__).parent
    apart = {root / "run/slurm/inside.py", *(root / "agent").rglob("*.py")}  # run where the harness is not
    texts = {path: path.read_text() for path in set(root.rglob("*.py")) - apart}
    assert not [path for path, text in texts.items() if "TemporaryDirectory" in text or "mkdtemp" in text]


def test_a_temporary_folder_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user saw a traceback when the disk was full."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    problem = "Not a directory; free some space there, or set TMPDIR"
    with pytest.raises(InfrastructureError, match=problem), owners.folder_for_files():
        pass


def test_a_link_of_that_name_is_none_of_ours(tmp_path: Path) -> None:
    """Anyone can make one in /tmp: its target must not be removed, and it must not stop a sweep."""
    (tmp_path / "precious").mkdir()
    (tmp_path / dead_name()).symlink_to(tmp_path / "precious")
    (tmp_path / dead_name("file")).write_text("")
    assert removed(tmp_path) == 0
    assert len(list(tmp_path.iterdir())) == 3


@as_root
def test_what_another_user_made_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / dead_name()
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    assert removed(tmp_path) == 0
    assert theirs.exists()


def test_runs_that_start_together_remove_the_same_leftovers(tmp_path: Path) -> None:
    for number in range(20):
        for inner in range(10):
            (tmp_path / dead_name(str(number)) / str(inner)).mkdir(parents=True)
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(removed, [tmp_path] * 4))
    assert list(tmp_path.iterdir()) == []
    assert sum(counts) >= 20


def test_a_folder_in_which_a_last_process_still_writes(tmp_path: Path) -> None:
    folder, started = tmp_path / "root", threading.Event()
    folder.mkdir()

    def write() -> None:
        until_s = time.monotonic() + 0.4
        while time.monotonic() < until_s:
            with contextlib.suppress(FileNotFoundError, FileExistsError):  # removed between two of its calls
                (folder / "logs").mkdir(parents=True, exist_ok=True)
            started.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert started.wait(5)
    owners.remove_folder(folder)
    writer.join()
    owners.remove_folder(folder)
    assert not folder.exists()


def test_folders_without_rights_are_removed_too() -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "sealed" / "inner").mkdir(parents=True)
    (folder / "sealed" / "inner" / "file").write_text("")
    for path in (folder / "sealed" / "inner", folder / "sealed", folder):
        path.chmod(0)
        if os.getuid() == 0:
            os.chown(path, NOBODY, NOBODY)
    child = os.fork()
    if child == 0:  # root may do everything: only an ordinary user can lack a permission
        try:
            if os.getuid() == 0:
                os.setuid(NOBODY)
            owners.remove_folder(folder)
            os._exit(0)
        finally:  # it must not go on as a second pytest
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert not folder.exists()


def test_folders_in_folders_are_removed_however_long_their_paths_are(tmp_path: Path) -> None:
    """The system takes no path of more than 4,095 bytes."""
    (tmp_path / "own").mkdir()
    here = os.open(tmp_path / "own", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("cache", dir_fd=here)
        os.mkdir("beside", dir_fd=here)
        os.symlink(tmp_path, "link", dir_fd=here)
        inner = os.open("cache", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    owners.remove_folder(tmp_path / "own")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_a_trials_folder(tmp_path: Path) -> None:
    """A program that replaced its home by a link must not cost the permissions of the folder that it linked."""
    own = tmp_path / "own"
    (own / "inner").mkdir(parents=True)
    for folder in (own, own / "inner"):
        folder.chmod(0o755)
    for name, target in (("home", own), ("broken", tmp_path / "nowhere")):
        (tmp_path / name).symlink_to(target)
        owners.remove_folder(tmp_path / name)

    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert {path.stat().st_mode & 0o777 for path in (own, own / "inner")} == {0o755}


def test_what_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "REMOVAL_S", 0.05)
    (tmp_path / "file").write_text("a file where a folder is expected")
    with pytest.raises(InfrastructureError, match=r"file: cannot be removed: Not a directory; end the processes"):
        owners.remove_folder(tmp_path / "file")


def test_a_cgroup_that_another_run_removed_is_empty(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert (cgroups.pids(gone), cgroups.oom_killed(gone)) == ([], False)
    cgroups.kill(gone)
    cgroups.remove(gone)


def test_a_limit_that_cannot_be_set_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        InfrastructureError, match=r"memory: a limit of 4096 bytes cannot be set in .*gone: .*; use docker"
    ):
        cgroups.limit(tmp_path / "gone", 4096)


def test_killing_the_dead_is_no_error() -> None:
    child = os.fork()
    if child == 0:
        try:
            signal.pause()
        finally:
            os._exit(1)
    killing.kill(lambda: [child], for_s=0.0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    killing.kill(lambda: [child], for_s=0.0)


# ---------------------------------------------------------------- the lease of a process host, which all users share


def linked(path: Path, target: Path) -> None:
    path.symlink_to(target)


def hard_linked(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def dangling(path: Path, target: Path) -> None:
    path.symlink_to(target.with_name("not there"))


def piped(path: Path, target: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("plant", [linked, hard_linked, dangling, piped])
def test_what_another_user_planted_there_is_neither_written_nor_waited_for(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    """A link in /tmp emptied the file to which it led, with the permissions of the sweep's user; a pipe blocked the
    sweep.
    """
    target = tmp_path / "precious"
    target.write_text("kept")
    plant(tmp_path / leases.NAME, target)
    place = re.escape(f"hosts.here: {tmp_path / leases.NAME}: is a link or a pipe, not a lease; remove it, or set")
    lease = leases.held(tmp_path, place="hosts.here", say=pytest.fail, stopped=lambda: False)
    with pytest.raises(InfrastructureError, match=f"^{place}"), lease:
        pytest.fail("it was held")
    assert leases.holder(tmp_path) is None
    assert target.read_text() == "kept"
    assert not (tmp_path / "not there").exists()


def test_a_holder_that_has_not_written_its_name_yet_is_another_process(tmp_path: Path) -> None:
    """It read "this host is in use by ", without a name."""
    with leases.held(tmp_path, place="x", say=pytest.fail, stopped=lambda: False):
        (tmp_path / leases.NAME).write_text("")
        assert leases.holder(tmp_path) == "another process"


def test_who_holds_it_is_told_in_one_line(tmp_path: Path) -> None:
    """Any user may write the holder's name, and a terminal would obey its control sequences."""
    said: list[str] = []
    with leases.held(tmp_path, place="x", say=pytest.fail, stopped=lambda: False):
        (tmp_path / leases.NAME).write_text("\x1b[2Jada\nfine")
        assert leases.holder(tmp_path) == "?[2Jada?fine"
        waits = iter([False, True])
        second = leases.held(tmp_path, place="x", say=said.append, stopped=lambda: next(waits))
        with pytest.raises(Interrupted), second:
            pytest.fail("it was held twice")
    assert said == ["waiting: this host is in use by ?[2Jada?fine"]
    assert leases.holder(tmp_path) is None


def test_two_hosts_of_one_sweep_on_one_machine_are_no_other_sweep(tmp_path: Path) -> None:
    """The second one waited for `process 20759`, which was the sweep itself."""
    said: list[str] = []
    with leases.held(tmp_path, place="x", say=pytest.fail, stopped=lambda: False):
        waits = iter([False, True])
        second = leases.held(tmp_path, place="x", say=said.append, stopped=lambda: next(waits))
        with pytest.raises(Interrupted), second:
            pytest.fail("it was held twice")
    assert said == [
        "waiting: this host is in use by another host of this sweep on the same machine: one runs after the other"
    ]


# ---------------------------------------------------------------- sweeps of other engines on this machine


HERE = {"name": platform.node()}


def test_sweeps_of_the_other_kind_know_of_each_other(tmp_path: Path) -> None:
    notes: list[str] = []
    with (
        announced("box", HERE, is_process=False, note=notes.append, folder=tmp_path),
        announced("here", {}, is_process=True, note=notes.append, folder=tmp_path),
        announced("box", HERE, is_process=False, note=notes.append, folder=tmp_path),
    ):
        assert [note.split(":")[0] for note in notes] == ["here", "box"]
        assert "another host of this sweep runs process trials" in notes[1], "this process is both"
    with announced("here", {}, is_process=True, note=notes.append, folder=tmp_path):
        assert len(notes) == 2


def test_engines_of_other_machines_and_sweeps_of_one_kind_are_no_neighbours(tmp_path: Path) -> None:
    notes: list[str] = []
    with (
        announced("far", {"name": "elsewhere"}, is_process=False, note=notes.append, folder=tmp_path),
        announced("here", {}, is_process=True, note=notes.append, folder=tmp_path),
        announced("here", {}, is_process=True, note=notes.append, folder=tmp_path),
    ):
        assert notes == []


def test_a_folder_that_takes_no_file_holds_up_no_sweep(tmp_path: Path) -> None:
    with announced("here", {}, is_process=True, note=lambda text: None, folder=tmp_path / "absent"):
        pass
