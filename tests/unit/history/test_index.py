"""The index: whatever happens to it, a user loses nothing that is in the runs, and is informed in one line."""

from __future__ import annotations

import ast
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from harness.errors import InfrastructureError, UsageError
from harness.history import database, writing
from harness.history.database import FILE, with_index
from harness.history.records import FindingLife
from harness.probes import results as saved_probes
from harness.store import result_file
from tests.unit.history import made
from tests.waiting import until


def tables(out: Path) -> dict[str, list[Any]]:
    """Return everything that the index holds, without its own ids."""
    joined = {
        "runs": "SELECT path, kind, verdict, cells, bad, findings, problem FROM runs ORDER BY path",
        "cells": "SELECT path, series, version, cells.verdict, state FROM cells JOIN runs ON run = runs.id"
        " JOIN histories ON history = histories.id ORDER BY 1, 2, 3",
        "figures": "SELECT path, version, signal, seen, value FROM figures JOIN cells ON cell = cells.id"
        " JOIN runs ON run = runs.id ORDER BY 1, 2, 3",
        "findings": "SELECT path, number, findings.kind, before, after, effect FROM findings JOIN runs ON run = runs.id"
        " ORDER BY 1, 2",
        "concluded": "SELECT series, variant, concluded FROM histories ORDER BY 1, 2",
    }
    with contextlib.closing(sqlite3.connect(out / FILE)) as connection, connection:
        return {name: connection.execute(query).fetchall() for name, query in joined.items()}


def lives(out: Path) -> list[FindingLife]:
    return with_index(out, lambda index: [life for one in index.histories() for life in one.lives], say=quiet)


def quiet(text: str) -> None:
    raise AssertionError(f"nobody should be told: {text}")


def paths(out: Path, said: list[str] | None = None) -> list[str]:
    say = quiet if said is None else said.append
    return with_index(out, lambda index: list(index.runs), say=say)


def test_it_looks_at_the_files_that_runs_have() -> None:
    """It names the files itself, because importing the code that writes them takes longer than
    listing a thousand runs.
    """
    assert (result_file.FILE, saved_probes.FILE) == database.FILES


def test_a_list_of_runs_waits_for_no_statistics(tmp_path: Path) -> None:
    """`harness history` over 1,000 runs took over a second, half of it to import numpy and pydantic."""
    made.three_days(tmp_path)
    with_index(tmp_path, lambda index: None, say=print)
    seen = "import sys; from harness.cli import run; run(['history', '--in', sys.argv[1]]); print(sorted(sys.modules))"
    told = subprocess.run([sys.executable, "-c", seen, tmp_path], capture_output=True, text=True, check=True).stdout
    assert "memory leak since 1.2" in told
    assert not {"numpy", "pydantic", "rich"} & set(ast.literal_eval(told.splitlines()[-1]))


def test_it_knows_each_run_with_its_verdicts_figures_and_findings(tmp_path: Path) -> None:
    made.three_days(tmp_path)
    assert [path.rpartition("-")[2] for path in paths(tmp_path)] == ["0001", "0002", "0003"]
    held = tables(tmp_path)
    assert [row[2:6] for row in held["runs"]] == [("ok", 2, 0, 0), ("regression", 2, 1, 1), ("regression", 2, 1, 1)]
    leak = [row for row in held["figures"] if row[1:3] == ("1.2", "memory")]
    assert [(seen, value) for *_, seen, value in leak] == [("bad", 7.8), ("bad", 7.8)]
    step = [row[4] for row in held["figures"] if row[1:3] == ("1.1", "step_time")]
    assert step == [pytest.approx(14.3e-6), pytest.approx(15.0e-6)]


def test_a_finding_is_open_from_one_run_to_the_run_that_fixed_it(tmp_path: Path) -> None:
    third = made.three_days(tmp_path)[2]
    (life,) = lives(tmp_path)
    assert life.ends is not None
    assert (life.status, life.begins.after, life.ends.after) == ("fixed", "1.2", "1.3")
    shutil.rmtree(third)
    (life,) = lives(tmp_path)
    assert (life.status, life.ends) == ("open", None)


def test_what_was_added_run_by_run_is_what_is_made_anew(tmp_path: Path) -> None:
    """The runs are the truth: an index that holds more or less than the runs would mislead permanently."""
    for number in range(1, 4):
        folder = tmp_path / "some"
        shutil.rmtree(folder, ignore_errors=True)
        made.three_days(folder)
        for path in sorted(folder.glob("nightly/*"))[number:]:
            shutil.rmtree(path)
        shutil.copytree(folder / "nightly", tmp_path / "nightly", dirs_exist_ok=True)
        paths(tmp_path)
    grown = tables(tmp_path)
    with_index(tmp_path, lambda index: None, say=lambda text: None, rebuild=True)
    assert tables(tmp_path) == grown
    assert len(grown["runs"]) == 3


def test_a_run_whose_result_is_written_again_is_read_again(tmp_path: Path) -> None:
    """`harness probe` and a resumed sweep write into a directory that the index already knows."""
    made.write_run(tmp_path, 1, {"1.0": made.good()})
    assert tables_after(tmp_path)["cells"][0][3] == "flat"
    shutil.rmtree(tmp_path / "nightly")
    made.write_run(tmp_path, 1, {"1.0": made.bad()})
    assert tables_after(tmp_path)["cells"][0][3] == "leak"


def tables_after(out: Path) -> dict[str, list[Any]]:
    paths(out)
    return tables(out)


# ---------------------------------------------------------------- what happens to the file


def _garbled(index: Path) -> None:
    index.write_bytes(b"not a database at all" * 100)


def _cut_short(index: Path) -> None:
    os.truncate(index, index.stat().st_size // 2)


def _with_a_trigger(index: Path) -> None:
    with contextlib.closing(sqlite3.connect(index)) as connection, connection:
        connection.execute("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END")


def _with_odd_values(path: Path) -> None:
    """It ended `harness runs` in a traceback."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET warnings = '{'")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_garbled, "file is not a database; it is rebuilt"),
        (_cut_short, ""),
        (_with_a_trigger, "its tables are not those of the harness"),  # a copied folder of runs comes with its index
        (_with_odd_values, "it holds what this harness does not write; it is rebuilt"),
    ],
)
def test_a_damaged_index_is_made_anew_and_the_old_one_kept(
    tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    made.three_days(tmp_path)
    paths(tmp_path)
    whole = tables(tmp_path)
    spoil(tmp_path / FILE)
    damaged = (tmp_path / FILE).read_bytes()
    said: list[str] = []
    assert len(paths(tmp_path, said)) == 3
    assert tables(tmp_path) == whole
    (told,) = said
    assert told.startswith(f"{tmp_path / FILE}: ")
    assert why in told
    assert (tmp_path / f"{FILE}.old").read_bytes()[:100] == damaged[:100]


def test_an_index_of_a_newer_harness_is_left_as_it_is(tmp_path: Path) -> None:
    made.three_days(tmp_path)
    paths(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(UsageError, match=r"written by a newer harness \(format 99; this one supports 1\)"):
        paths(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (99,)


def test_a_locked_index_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.three_days(tmp_path)
    paths(tmp_path)
    made.write_run(tmp_path, 4, {"1.3": made.good()})
    monkeypatch.setattr(database, "BUSY_S", 0.1)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InfrastructureError, match=r"another process has kept it locked for 0 s; try again"):
            paths(tmp_path)
    assert len(paths(tmp_path)) == 4


@pytest.mark.parametrize("name", [FILE, f"{FILE}-wal"])
def test_no_link_is_followed(tmp_path: Path, name: str) -> None:
    made.three_days(tmp_path / "reports")
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "reports" / name).symlink_to(target)
    with pytest.raises(InfrastructureError, match="not a regular file; remove it"):
        paths(tmp_path / "reports")
    assert target.read_text() == "precious"


def test_in_a_folder_of_somebody_else_it_is_made_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.three_days(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    said: list[str] = []
    assert len(paths(tmp_path, said)) == 3
    assert "in memory" in said[0]
    assert not (tmp_path / FILE).exists()


def test_a_run_that_may_not_be_read_is_listed_until_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`harness runs` said `no runs` of a folder whose runs belong to somebody else."""
    run = made.write_run(tmp_path, 1, {"1.0": made.good()})
    monkeypatch.setattr(os, "lstat", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert [path for path, _ in database._runs(tmp_path, {})] == [f"{run.parent.name}/{run.name}"]
    monkeypatch.undo()
    monkeypatch.setattr(
        writing, "_read", Mock(side_effect=PermissionError(13, "Permission denied", f"{run}/result.json"))
    )
    said: list[str] = []
    paths(tmp_path, said)
    (told,) = said
    assert told.endswith("/result.json: Permission denied; make it readable, or copy the run's directory again")
    monkeypatch.undo()
    (run / "result.json").chmod(0o644)
    problems = with_index(tmp_path, lambda index: [run.problem for run in index.runs.values()], say=quiet)
    assert problems == [""], "`harness runs` went on to say that it cannot be read"


def _fill(out: Path) -> None:
    with_index(out, lambda index: None, say=lambda text: None)


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """A sweep ends at the same time as a watch."""
    for day in range(1, 21):
        made.write_run(tmp_path, day, {"1.0": made.good(), f"1.{day}": made.good()})
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_fill, args=(tmp_path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(tables(tmp_path)["runs"]) == len(tables(tmp_path)["cells"]) // 2 == 20


def test_killed_in_the_middle_it_holds_whole_runs_and_goes_on(tmp_path: Path) -> None:
    for day in range(1, 29):
        made.write_run(tmp_path, day, {f"1.{number}": made.good() for number in range(day, day + 6)})
    program = f"from tests.unit.history.test_index import _fill; _fill(__import__('pathlib').Path({str(tmp_path)!r}))"
    with subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[3]) as process:
        assert until(lambda: _has_runs(tmp_path, 3), seconds=60)
        process.send_signal(signal.SIGKILL)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        cells = connection.execute("SELECT count(*) FROM cells GROUP BY run").fetchall()
    assert cells
    assert {count for (count,) in cells} == {6}
    assert len(paths(tmp_path)) == 28
    assert len(tables(tmp_path)["cells"]) == 28 * 6


def _has_runs(out: Path, least: int) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{out / FILE}?mode=ro", uri=True)) as connection, connection:
            return bool(connection.execute("SELECT count(*) FROM runs").fetchone()[0] >= least)
    except sqlite3.Error:
        return False


# ---------------------------------------------------------------- runs that came from somebody else


def _edited(path: Path, change: Any) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


HOSTILE = {
    "garbage": lambda run: (run / "result.json").write_text("{"),
    "nested": lambda run: (run / "result.json").write_text("[" * 100_000),
    "pipe": lambda run: ((run / "result.json").unlink(), os.mkfifo(run / "result.json")),
    "link": lambda run: ((run / "result.json").unlink(), (run / "result.json").symlink_to("/dev/zero")),
    "no plan": lambda run: (run / "plan.json").unlink(),
    "huge number": lambda run: _edited(
        run / "result.json", lambda told: next(iter(told["cells"].values()))["verdict"].update(trials=10**40)
    ),
    "long params": lambda run: _edited(
        run / "plan.json", lambda plan: plan["rows"][0]["params"].update(size="x" * 5000)
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_run_that_cannot_be_read_is_named_and_hides_no_other(tmp_path: Path, kind: str) -> None:
    _, second, _ = made.three_days(tmp_path)
    HOSTILE[kind](second)
    said: list[str] = []
    runs = with_index(tmp_path, lambda index: index.runs.values(), say=said.append)
    assert len(said) == 1
    assert said[0].startswith("not in the index: nightly/20260302T040000Z-0002: ")
    assert "\n" not in said[0]
    assert [bool(run.problem) for run in runs] == [False, True, False]
    assert len(tables(tmp_path)["cells"]) == 4
    paths(tmp_path)  # reported once


def test_what_try_launched_first_is_no_run_that_the_user_asked_for(tmp_path: Path) -> None:
    """One `harness try` was listed as two runs, and its oldest version as measured in both."""
    first, *_ = made.three_days(tmp_path)
    _edited(first / "plan.json", lambda plan: plan.update(rehearsal=True))
    (first / "result.json").unlink()  # the `try` was killed in these launches
    assert len(paths(tmp_path)) == 2
    assert len(tables(tmp_path)["cells"]) == 4


def test_what_is_no_text_or_no_number_is_stored_as_one_that_is(tmp_path: Path) -> None:
    run = made.write_run(tmp_path, 1, {"1.0": made.good()})

    def spoil(told: Any) -> None:
        verdict = next(iter(told["cells"].values()))["verdict"]
        verdict.update(why="\ud800" + "x" * 9000)
        verdict["signals"]["step_time"]["value"] = float("nan")
        verdict["signals"]["setup_time"]["value"] = float("inf")

    _edited(run / "result.json", spoil)
    paths(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        (why,) = connection.execute("SELECT why FROM cells").fetchone()
        figures = dict(connection.execute("SELECT signal, value FROM figures"))
    assert (why[:2], len(why)) == ("?x", 2000)
    assert (figures["step_time"], figures["setup_time"]) == (None, None)


def test_a_folder_with_an_odd_name_is_no_run(tmp_path: Path) -> None:
    made.three_days(tmp_path)
    (tmp_path / "nightly/20260301T040000Z-0001").rename(tmp_path / "nightly/2\udcff026\n")
    assert len(paths(tmp_path)) == 2


def test_a_probe_has_a_line_of_its_own(tmp_path: Path) -> None:
    made.three_days(tmp_path)
    probe = tmp_path / "nightly/20260304T040000Z-0004"
    probe.mkdir()
    (probe / "probes.json").write_text("[]")
    runs = with_index(tmp_path, lambda index: index.runs.values(), say=quiet)
    assert [run.kind for run in runs] == ["sweep"] * 3 + ["probe"]


def test_many_problems_are_not_told_one_by_one(tmp_path: Path) -> None:
    for day in range(1, 9):
        (made.write_run(tmp_path, day, {"1.0": made.good()}) / "result.json").write_text("")
    said: list[str] = []
    paths(tmp_path, said)
    assert len(said) == database.MOST_TOLD + 1
