"""The journal: measurements must survive a crash, a copy and a later format."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InfrastructureError, UsageError
from harness.model import (
    Asked,
    Cell,
    Conditions,
    Facts,
    Failure,
    LaunchedImage,
    Look,
    Printed,
    Steps,
    Trace,
    Trial,
    Trials,
    measured,
)
from harness.store import RunDirectory, json_files, read_trial, trial_to_json, write_atomically
from harness.store.trial_json import trial_file
from tests.players.plans import a_cell


def a_trial(cell: Cell, *, key: str = "k", number: int = 1, started: str = "t1", end: str = "completed") -> Trial:
    trace = Trace(
        step=np.arange(1.0, 5.0),
        columns={"rss_kib": np.array([1.0, np.nan, 3.0, 4.0]), "step_s": np.array([1e-7, 0.123456789, 3.0, 4.0])},
        looks=(Look(step=4, values={"rss_kib": 4.0}),),
    )
    return Trial(cell_id=cell.id, number=number, key=key, end=end, trace=trace, started=started)  # type: ignore[arg-type]


def a_run(tmp_path: Path, *, matrix: str = "m") -> RunDirectory:
    return RunDirectory.create(out=tmp_path, matrix=matrix, now=datetime.now(timezone.utc))


def test_a_trial_comes_back_as_it_was(tmp_path: Path) -> None:
    """Verdicts are computed again from the directory alone: what is read must equal what was measured."""
    run, cell = a_run(tmp_path), a_cell()
    run.write_trial(a_trial(cell), cell)
    (back,) = run.known_trials(cell, "k", asked=Trials())
    assert back.trace is not None
    np.testing.assert_array_equal(back.trace.columns["rss_kib"], [1.0, np.nan, 3.0, 4.0])
    np.testing.assert_array_equal(back.trace.columns["step_s"], [1e-7, 0.123456789, 3.0, 4.0])
    assert back.trace.looks == (Look(step=4, values={"rss_kib": 4.0}),)


def test_a_tiny_number_of_a_trial_is_no_zero() -> None:
    """A residual of 3.9e-11 came back as 0."""
    cell, tiny = a_cell(), [3.947984e-11, -3.3e-10, 1e-300, 0.0]
    trial = a_trial(cell)
    assert trial.trace is not None
    told = trial_to_json(replace(trial, trace=replace(trial.trace, columns={"residual": np.array(tiny)})), cell)
    assert json.loads(json.dumps(told))["trace"]["columns"]["residual"] == tiny


FULL = {
    "output": Printed(head="first\n", bytes=1234, buffered="3 of 4 steps came in bursts"),
    "not_finite": {"loss": (3, 17)},
    "failure": Failure(at_exit=True),
    "conditions": Conditions(cold=True),
    "image": LaunchedImage(bytes=5 << 30),
}


def test_what_is_seen_beside_memory_comes_back_as_it_was(tmp_path: Path) -> None:
    """Otherwise `harness rerender` would give a different result from the sweep."""
    run, cell = a_run(tmp_path), a_cell()
    plain = a_trial(cell, end="crash")
    assert plain.trace is not None
    counts = {"step": np.array([1.0, 4.0]), "threads": np.array([1.0, np.nan]), "disk": np.array([0.5, 12.25])}
    looks = (Look(step=4, values={"rss_kib": 4.0, "cpu_s": 0.125}),)
    over_time = {"at_s": np.array([0.05, 0.1]), "rss_kib": np.array([9.0, 8.0]), "anon_kib": np.array([5.0, np.nan])}
    trace = replace(plain.trace, counts=counts, looks=looks, over_time=over_time)
    trial = replace(plain, trace=trace, **FULL)  # type: ignore[arg-type]
    run.write_trial(trial, cell)
    (back,) = run.known_trials(cell, "k", asked=Trials())

    assert {name: getattr(back, name) for name in FULL} == FULL
    assert back.trace is not None
    assert back.trace.looks == looks
    for told, kept in ((back.trace.counts, counts), (back.trace.over_time, over_time)):
        assert set(told) == set(kept)
        for name, values in kept.items():
            np.testing.assert_array_equal(told[name], values)


def read_with(folder: Path, **parts: object) -> Trace | None:
    """Return the trace of a trial's file in which these parts of the trace were replaced."""
    cell = a_cell()
    content = trial_to_json(a_trial(cell), cell)
    content["trace"].update(parts)
    (folder / "x.json").write_text(json.dumps(content))
    return read_trial(folder / "x.json").trace


@pytest.mark.parametrize("names", [None, (), ("sleep",)])
def test_that_nothing_outlived_a_program_is_known_after_a_reload(tmp_path: Path, names: tuple[str, ...] | None) -> None:
    """A fact that was empty came back as unknown, so that launches of an earlier run could not be compared."""
    cell = a_cell()
    trial = replace(a_trial(cell), facts=Facts(python="3.11", outlived_by=names))
    (tmp_path / "x.json").write_text(json.dumps(trial_to_json(trial, cell)))
    assert read_trial(tmp_path / "x.json").facts == trial.facts


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
def test_a_figure_of_a_look_that_is_not_finite_is_missing(tmp_path: Path, figure: float) -> None:
    """The diagnosis of a GPU would otherwise end in a traceback."""
    trace = read_with(tmp_path, looks=[{"step": 4, "gpu_reasons": figure}])
    assert trace is not None
    assert trace.looks == (Look(step=4, values={}),)


@pytest.mark.parametrize(
    "parts",
    [
        {"counts": {"threads": [1.0]}},
        {"counts": {"step": [1.0], "threads": []}},
        {"counts": {"step": [2.0, 1.0]}},
        {"counts": {"step": [None]}},
        {"counts": {"step": [1.0], "threads": [-1.0]}},
        {"counts": {"step": [1.0], "threads": ["x"]}},
        {"over_time": {"at_s": [0.2, 0.1], "rss_kib": [1.0, 1.0]}},
        {"over_time": {"rss_kib": [1.0]}},
        {"columns": {"step": [1, 2], "rss_kib": [1.0]}},
    ],
)
def test_a_trace_that_cannot_be_is_refused(tmp_path: Path, parts: dict[str, object]) -> None:
    """A copied directory is not trusted: judging columns of different lengths would give a meaningless verdict."""
    with pytest.raises(UsageError, match=r"not a trial of the harness|differ in length"):
        read_with(tmp_path, **parts)


@pytest.mark.parametrize(
    ("rows", "columns", "told"),
    [(6, 2, "more than 5 rows"), (3, 4, "more than 3 columns"), (5, 3, "more than 12 samples"), (4, 3, "")],
)
def test_a_trace_that_no_agent_sends_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, told: str
) -> None:
    """Half a million rows of 64 columns took 2 GB, in every command that read the run."""
    for name, most in (("MOST_ROWS", 5), ("MOST_COLUMNS", 3), ("MOST_VALUES", 12)):
        monkeypatch.setattr(measured, name, most)
    own = {f"own{number}": [0.0] * rows for number in range(1, columns)}
    with pytest.raises(UsageError, match=told) if told else contextlib.nullcontext():
        assert read_with(tmp_path, columns={"step": list(range(1, rows + 1)), **own}) is not None


def test_the_largest_trial_that_is_written_is_read_again(tmp_path: Path) -> None:
    """A trial that is refused is measured again, in every run. No number takes more space than this one."""
    cell = a_cell()
    longest = np.array([-1.2345678901234567e29, -123456789.123456789])
    trial = replace(a_trial(cell), trace=Trace(step=np.array([1.0, 2.0]), columns={"x": longest}))
    text = json.dumps(trial_to_json(trial, cell), separators=(",", ":"))
    told = text.split('"x":[')[1].split("]")[0].split(",")
    assert max(map(len, told)) * measured.MOST_VALUES < json_files.MOST_BYTES * 0.9
    assert measured.MOST_VALUES < json_files.MOST_VALUES * 0.9
    (tmp_path / "x.json").write_text(text)
    back = read_trial(tmp_path / "x.json").trace
    assert back is not None
    np.testing.assert_array_equal(back.columns["x"], longest)


@pytest.mark.parametrize("other", [{"key": "old"}, {"end": "infrastructure"}])
def test_what_says_nothing_of_this_image_is_not_reused(tmp_path: Path, other: dict[str, Any]) -> None:
    """A stale trial, of another image behind the same tag, would be a wrong accusation; and yesterday's full disk must
    not leave a cell untested today.
    """
    run, cell = a_run(tmp_path), a_cell()
    run.write_trial(a_trial(cell, **other), cell)
    assert run.known_trials(cell, "k", asked=Trials()) == ()


@pytest.mark.parametrize(
    ("end", "took_s", "limit_s", "known"),
    [("completed", 1.0, 1200.0, 1), ("completed", 90.0, 1200.0, 0), ("hang", 1.0, 1200.0, 0), ("hang", 90.0, 70.0, 1)],
)
def test_a_launch_that_no_time_limit_ended_counts_under_any(
    tmp_path: Path, end: str, took_s: float, limit_s: float, known: int
) -> None:
    """`harness try` fits the limit to its first launch, which it then made again."""
    run, cell = a_run(tmp_path), a_cell(command=("run",), timeout_s=70.0)
    run.write_trial(replace(a_trial(cell, end=end), duration_s=took_s, asked=Asked(timeout_s=limit_s)), cell)
    assert len(run.known_trials(cell, "k", asked=Trials())) == known


def test_trials_of_earlier_runs_are_found_once(tmp_path: Path) -> None:
    """A trial carried from run to run is one launch; counting it twice would fake agreement."""
    first, second, cell = a_run(tmp_path), a_run(tmp_path), a_cell()
    for run in (first, second):
        run.write_trial(a_trial(cell), cell)
    first.write_trial(a_trial(cell, number=2, started="t2"), cell)
    assert [trial.started for trial in second.known_trials(cell, "k", asked=Trials())] == ["t1", "t2"]


def test_a_version_of_many_days_keeps_its_first_and_its_newest_launches(tmp_path: Path) -> None:
    """The baseline of a daily sweep kept all launches for ever, so that two rare crashes in a month made it bad; its
    oldest ones are compared with the versions of those days."""
    run, cell = a_run(tmp_path), a_cell()
    for number in range(90):
        trial = a_trial(cell, number=number + 1, started=f"t{number:02}")
        run.write_trial(replace(trial, run=f"day {number // 3:02}"), cell)
    for most, newest in ((16, 7), (8, 3), (3, 3)):
        known = run.known_trials(cell, "k", asked=Trials(least=3, most=most))
        assert [int(trial.started[1:]) for trial in known] == [*range(9), *range(90 - newest, 90)]


def test_launches_of_interrupted_sweeps_stay_together_and_are_not_made_again(tmp_path: Path) -> None:
    """With those of the oldest run alone, the versions of that day would have one launch to be compared by."""
    run, cell = a_run(tmp_path), a_cell()
    for number, day in enumerate(["a", *"bbb", *"ccc", *"ddd"], start=1):
        run.write_trial(replace(a_trial(cell, number=number, started=f"t{number:02}"), run=day), cell)
    known = run.known_trials(cell, "k", asked=Trials(least=2, most=5))
    assert [trial.run for trial in known] == ["a", *"bbb", *"ccc", *"dd"]
    for asked in (Trials(least=3, most=10), Trials(least=10, most=20)):
        assert len(run.known_trials(cell, "k", asked=asked)) == 10


def test_two_trials_with_the_same_inode_are_both_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On file systems that make inodes up, one of them was lost, and ran again."""
    run, cell = a_run(tmp_path), a_cell()
    for number in (1, 2):
        run.write_trial(a_trial(cell, number=number, started=f"t{number}"), cell)
    really = Path.lstat

    def lstat(path: Path) -> Any:
        found = really(path)
        kept = {name: getattr(found, name) for name in ("st_mode", "st_dev", "st_size", "st_mtime_ns")}
        return SimpleNamespace(**kept, st_ino=7)

    monkeypatch.setattr(Path, "lstat", lstat)
    assert len(run.known_trials(cell, "k", asked=Trials())) == 2


def test_a_file_system_that_cannot_sync_folders_or_make_links_holds_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared folders of virtual machines and sticks refuse both: no file of a run could be written."""
    really = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        really(handle)

    def symlink(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "symlink", symlink)
    run = a_run(tmp_path)
    assert run.write("a", "text").read_text() == "text"
    run.point_latest()
    assert [path.name for path in (tmp_path / "m").iterdir()] == [run.id]


def test_trials_that_began_at_the_same_moment_are_not_mistaken(tmp_path: Path) -> None:
    """Two hosts begin at the same time: each cell must reuse its own trial, or one version gets the
    result of another.
    """
    first, second, cells = a_run(tmp_path), a_run(tmp_path), (a_cell(), a_cell("2.0"))
    for cell in cells:
        first.write_trial(a_trial(cell), cell)
    known = [second.known_trials(cell, "k", asked=Trials()) for cell in cells]
    for cell, (trial,) in zip(cells, known, strict=True):
        adopted = second.adopt(trial, cell, number=1)
        assert second.read_back(adopted).cell_id == cell.id


def test_a_full_disk_is_said_and_leaves_the_old_file(tmp_path: Path) -> None:
    """A half-written report is worse than the old one."""
    path = tmp_path / "f"
    write_atomically(path, "old")
    with pytest.raises(InfrastructureError, match="cannot write"):
        write_atomically(tmp_path / "no" / "such" / "folder", "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


def test_a_file_that_gets_no_name_later_is_written_under_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc is not mounted, no file of a run could be written."""

    def link(*args: object, **more: object) -> None:
        raise OSError(errno.ENOENT, "no /proc")

    monkeypatch.setattr(os, "link", link)
    write_atomically(tmp_path / "f", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_text() == "new"


@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_a_file_that_is_written_has_no_name_until_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_unnamed_files: bool
) -> None:
    """A kill during the write left `.f.cc9b6649.tmp` in a run's directory for good."""
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append([each.name for each in tmp_path.iterdir()]))
    if not has_unnamed_files:
        monkeypatch.setattr(os, "O_TMPFILE", 0)
    write_atomically(tmp_path / "f", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_text() == "new"
    assert bool(seen[0]) is not has_unnamed_files


def test_kill_9_leaves_whole_files(tmp_path: Path) -> None:
    """The next call resumes from the journal: an incomplete file would lose or falsify a trial."""
    program = (
        "import sys, itertools; from pathlib import Path; from harness.store import write_atomically\n"
        "for n in itertools.count(): write_atomically(Path(sys.argv[1]) / 'f.json', ('%d,' % n) * 200000 + 'end')"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    path = tmp_path / "f.json"
    try:
        while not path.exists():
            time.sleep(0.01)
        time.sleep(0.3)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.read_text().endswith(",end")


@given(st.text(min_size=1), st.text())
def test_a_cell_s_id_is_a_safe_file_name(version: str, value: str) -> None:
    """A tag or param named `../../x` must not write outside the run's directory."""
    name = a_cell(version, params=(("p", value),)).id
    assert len(name) <= 100
    assert all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    assert not name.startswith(".")


@given(st.text(), st.text())
def test_different_cells_have_different_ids(one: str, other: str) -> None:
    """Two variants in one file would overwrite each other's trials."""
    ids = {a_cell(params=(("p", value),)).id for value in {one, other}}
    assert len(ids) == len({one, other})


def test_a_folder_for_which_there_is_no_room_is_told(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert run.folder("inputs") == run.folder("inputs") == run.path / "inputs"
    run.write("file", "")
    with pytest.raises(InfrastructureError, match="file: cannot be made: Not a directory; free some space"):
        run.folder("file")


def test_looks_have_an_end_whatever_a_copied_plan_says() -> None:
    """They were doubled from zero, in an endless loop."""
    assert Steps(first=0, budget=4).looks() == (1, 2, 4)


def test_a_run_that_is_removed_meanwhile_is_not_known(tmp_path: Path) -> None:
    """`harness clean --runs` ran at the same time as a sweep: the sweep ended with a traceback."""
    run, cell = a_run(tmp_path), a_cell()
    run.write_trial(a_trial(cell), cell)
    gone = a_run(tmp_path)
    trial_file(gone.path, a_trial(cell)).symlink_to("removed")
    assert len(run.known_trials(cell, "k", asked=Trials())) == 1


def test_a_decision_for_which_there_is_half_the_room_leaves_whole_lines(tmp_path: Path) -> None:
    """A disk writes as much as it has space for, and reports nothing."""
    code = f"""
import resource
from pathlib import Path
from harness.errors import InfrastructureError
from harness.store import RunDirectory
resource.setrlimit(resource.RLIMIT_FSIZE, (150, 150))
run = RunDirectory(Path({str(tmp_path)!r}))
run.write_decision({{"reason": "x" * 80}})
try:
    run.write_decision({{"reason": "y" * 80}})
except InfrastructureError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "decisions.jsonl: cannot write: No space left on device" in done.stdout
    assert [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()] == [
        {"reason": "x" * 80}
    ]
