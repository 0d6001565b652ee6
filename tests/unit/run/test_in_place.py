"""A command that is varied runs on this machine as if the user had typed it, and leaves nothing."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.agent import stopping
from harness.agent.scenario import result_file
from harness.errors import Interrupted
from harness.matrix import load_matrix
from harness.model import Cell, Trial, Trials
from harness.plan.cells import select
from harness.plan.explain import typed
from harness.run.engine import LaunchRequest
from harness.run.process import cgroups
from harness.run.trial.conversation import Conversation, alone
from harness.run.trial.payload import in_place, pack, trial_key
from harness.store import RunDirectory, users_folder
from tests.players.world import World, quiet
from tests.unit.matrix.conftest import FakeIndex
from tests.waiting import until

TELLS = """\
import json, os, sys
names = ("FLAG", "MODE", "HOME", "SECRET_TOKEN")
told = {"words": sys.argv, "folder": os.getcwd(), "variables": {name: os.environ.get(name) for name in names}}
json.dump(told, open("told.json", "w"))
print("FLAG=%s" % os.environ["FLAG"], "flag: %s" % os.environ["FLAG"], "value 2.5 flag=1")
"""
ODD = ["a b", 'it\'s $HOME, "quoted"', "1.10"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    environ = {**os.environ, "SECRET_TOKEN": "mine", "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    opened = World.open("process", environ)
    yield opened
    opened.engine.close()


def cells(folder: Path, versions: list[str] | None = None, **scenario: Any) -> tuple[Cell, ...]:
    """Return the cells of a matrix file in `folder`, with one row for each combination of params."""
    series = {"vary": "FLAG", "versions": versions or ["1", "2"]}
    matrix = {"version": 1, "series": {"flag": series}, "scenarios": {"bench": scenario}}
    doubled = json.dumps(matrix).replace("$", "$$")
    (folder / "matrix.yaml").write_text(doubled)
    read = load_matrix(folder / "matrix.yaml", environ={}, index=FakeIndex(silent=True))
    return select(read, seed=1).cells


def launch(world: World, cell: Cell) -> LaunchRequest:
    return LaunchRequest(
        prepared=world.engine.prepare(cell.image, quiet),
        scenario=cell.launched.scenario,
        payload=pack(cell.launched, extras={"in_place": in_place(cell)}),
        run="",
        cell_id="cell",
    )


def ran(world: World, cell: Cell, **more: Any) -> Trial:
    return alone(Conversation(launch=launch(world, cell), decide=lambda trace: "go", **more).run(world.engine))


def test_what_runs_is_what_the_dry_run_prints(world: World, tmp_path: Path) -> None:
    (tmp_path / "tells.py").write_text(TELLS)
    command = [sys.executable, "tells.py", "--flag={version}", "--mode={mode}", "it's", "two  spaces", "$HOME", ""]
    given = {"params": {"mode": ["fast"]}, "environment": {"MODE": "{mode}"}, "command": command}
    for cell, version in zip(cells(tmp_path, ODD, **given), ODD, strict=True):
        trial = ran(world, cell)
        assert trial.end == "completed", trial
        told = json.loads((tmp_path / "told.json").read_text())
        words = shlex.split(typed(cell))
        assert words[:2] == [f"FLAG={version}", "MODE=fast"]
        assert words[2:] == [sys.executable, *told["words"]]
        assert told["words"][1] == f"--flag={version}"
        assert told["folder"] == str(tmp_path)
        home = {"HOME": os.environ.get("HOME"), "SECRET_TOKEN": "mine"}
        assert told["variables"] == {"FLAG": version, "MODE": "fast", **home}
        assert "mine" not in json.dumps(trial.facts.environment)
        assert not trial.facts.packages, "they are the harness's own"


def test_the_variable_itself_is_no_result(world: World, tmp_path: Path) -> None:
    """A benchmark prints its settings. Each version then had another number, so that each was bad."""
    (tmp_path / "tells.py").write_text(TELLS)
    cell, _ = cells(tmp_path, command=[sys.executable, "tells.py"])
    trial = ran(world, cell)
    assert trial.trace is not None
    assert set(trial.trace.metrics) == {"value"}


def test_a_changed_file_or_another_folder_is_another_trial(world: World, tmp_path: Path) -> None:
    keys = []
    for name, text in (("a", "1"), ("a", "2"), ("b", "2")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "conf").write_text(text)
        cell, other = cells(tmp_path / name, command=["true"], files=["conf"])
        images = [world.engine.prepare(each.image, quiet) for each in (cell, other)]
        keys += [trial_key(each, prepared=image, facts={}) for each, image in zip((cell, other), images, strict=True)]
    assert len(set(keys)) == len(keys)


# ---------------------------------------------------------------- which launches still count


def launched(journal: RunDirectory, cell: Cell, number: int, *, writes: Mapping[Path, str]) -> None:
    """Record a launch that writes files."""
    with journal.watched(cell):
        started = datetime.now(timezone.utc).isoformat(timespec="microseconds")
        time.sleep(0.02)  # a file system's clock is coarse
        for path, text in writes.items():
            path.write_text(text)
        time.sleep(0.02)
    trial = Trial(cell_id=cell.id, number=number, key="k", end="completed", started=started)
    journal.write_trial(trial, cell)


def journal_in(folder: Path) -> RunDirectory:
    return RunDirectory.create(out=folder / "reports", matrix="m", now=datetime.now(timezone.utc))


@pytest.mark.parametrize(
    ("during", "afterwards", "valid"),
    [
        ([{}, {}, {}], "helper.py", 0),
        ([{}, {"helper.py": "mended"}, {}], "", 1),  # the user was faster than the sweep
        ([{"old.csv": "1"}, {"old.csv": "2"}, {"old.csv": "3"}], "old.csv", 3),
        ([{"a.csv": ""}, {"b.csv": ""}, {"a.csv": ""}], "", 3),
        ([{"conf": "made once"}, {}, {}], "conf", 0),
        ([{}, {}, {}], ".git/index", 3),
        ([{}, {}, {}], "pkg/__pycache__/a.pyc", 3),
        ([{}, {}, {}], "reports/m/note", 3),
        ([{}, {}, {}], "matrix.yaml", 3),
    ],
)
def test_launches_count_only_for_the_folder_as_it_was(
    tmp_path: Path, during: list[dict[str, str]], afterwards: str, valid: int
) -> None:
    """The user mended a module that the command imports, and was told that the version still crashes."""
    cell, _ = cells(tmp_path, command=["true"])
    for name in ("helper.py", "old.csv", ".git/index", "pkg/__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    time.sleep(0.02)
    journal = journal_in(tmp_path)
    for number, written in enumerate(during, start=1):
        launched(journal, cell, number, writes={tmp_path / name: text for name, text in written.items()})
    if afterwards:
        time.sleep(0.02)
        (tmp_path / afterwards).write_text("new")
    again = journal_in(tmp_path)
    assert len(again.known_trials(cell, "k", asked=Trials(least=3))) == valid
    changed = afterwards or "helper.py"
    assert again.why_again(cell) == (f"{changed} has changed since" if valid < 3 else "")


def test_what_an_interrupted_launch_wrote_is_no_change(tmp_path: Path) -> None:
    """A sweep that was interrupted measured everything again."""
    cell, _ = cells(tmp_path, command=["true"])
    journal = journal_in(tmp_path)
    launched(journal, cell, 1, writes={})
    with suppress(Interrupted), journal.watched(cell):
        (tmp_path / "half.csv").write_text("1")
        raise Interrupted("interrupted")
    assert len(journal_in(tmp_path).known_trials(cell, "k", asked=Trials())) == 1


@pytest.mark.parametrize(
    ("name", "mode", "valid"), [("told.log", 0o644, 1), ("nohup.out", 0o600, 1), ("a.out", 0o755, 0)]
)
def test_a_log_is_no_change_and_a_program_is_one(tmp_path: Path, name: str, mode: int, valid: int) -> None:
    """Whoever keeps the log of a sweep in the same folder measured everything again each time."""
    cell, _ = cells(tmp_path, command=["true"])
    launched(journal_in(tmp_path), cell, 1, writes={})
    (tmp_path / name).write_text("1")
    (tmp_path / name).chmod(mode)
    assert len(journal_in(tmp_path).known_trials(cell, "k", asked=Trials())) == valid


@pytest.mark.parametrize(
    "line", ["no JSON", '{"cell": "a", "made": ["b"], "changed": [], "ended_ns": null}', "[" * 100_000]
)
def test_a_log_of_launches_that_is_damaged_is_skipped(tmp_path: Path, line: str) -> None:
    cell, _ = cells(tmp_path, command=["true"])
    journal = journal_in(tmp_path)
    launched(journal, cell, 1, writes={tmp_path / "b": ""})
    journal.write(users_folder.FILE, f"{line}\n")
    assert journal_in(tmp_path).known_trials(cell, "k", asked=Trials()) == ()


def test_a_folder_with_too_many_files_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, _ = cells(tmp_path, command=["true"])
    launched(journal_in(tmp_path), cell, 1, writes={tmp_path / name: "" for name in "abc"})
    monkeypatch.setattr(users_folder, "MOST_FILES", 2)
    again = journal_in(tmp_path)
    assert again.known_trials(cell, "k", asked=Trials()) == ()
    assert "more than 2 files" in again.why_again(cell)


# ---------------------------------------------------------------- what it starts is ended


LEAVES = """\
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stdout = sys.stderr = open(os.devnull, "w")
        os.closerange(0, 3)
        open("daemon.new", "w").write(str(os.getpid()))
        os.rename("daemon.new", "daemon")
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists("daemon"):
    time.sleep(0.01)
if sys.argv[1:] == ["stays"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
"""


def daemon(folder: Path) -> int:
    return int((folder / "daemon").read_text())


@pytest.mark.parametrize("how", ["ends", "stays", "interrupted"])
def test_a_daemon_that_ignores_sigterm_does_not_outlive_its_launch(world: World, tmp_path: Path, how: str) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES)
    words = [sys.executable, "leaves.py", *([] if how == "ends" else ["stays"])]
    stop, timeout = ["sh", "-c", "echo {version} $FLAG >> stopped"], "1s" if how == "stays" else "60s"
    (cell, _) = cells(tmp_path, command=words, stop=stop, timeout=timeout)
    trial = ran(world, cell, cancelled=lambda: how == "interrupted" and (tmp_path / "daemon").exists())
    assert trial.end == {"ends": "completed", "stays": "stopped", "interrupted": "interrupted"}[how], trial
    assert not psutil.pid_exists(daemon(tmp_path))
    assert (tmp_path / "stopped").read_text() == "1 1\n", "once"
    assert world.engine.leftovers() == ()


SWEEPS = """\
import sys
from pathlib import Path
from harness.store import RunDirectory, users_folder
from tests.players.world import World
from tests.unit.run.test_in_place import cells, ran
import os
words = [sys.executable, "leaves.py", "stays"]
(cell, *_) = cells(Path(sys.argv[1]), command=words, stop=["sh", "-c", "echo $FLAG >> stopped"])
ran(World.open("process", os.environ), cell)
"""


@pytest.mark.kills
@pytest.mark.parametrize("also_agent", [False, True])
def test_a_killed_harness_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, also_agent: bool) -> None:
    """The agent ends everything if it is left alone; if it was killed, too, the next command of the harness does."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "leaves.py").write_text(LEAVES)
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    harness = subprocess.Popen([sys.executable, "-c", SWEEPS, str(tmp_path)], env=environ)
    assert until((tmp_path / "daemon").exists, seconds=120)
    agents = psutil.Process(harness.pid).children()
    os.kill(harness.pid, signal.SIGKILL)
    if also_agent:
        for agent in agents:
            agent.kill()
    harness.wait()
    if also_agent:
        assert cgroups.remove_leftovers(tmp_path) > 0
    assert until(lambda: not any(agent.is_running() for agent in agents), seconds=120)
    assert until(lambda: not psutil.pid_exists(daemon(tmp_path)), seconds=120)
    cgroups.remove_leftovers(tmp_path)
    assert (tmp_path / "stopped").read_text() == "1\n", "once"
    assert not list(tmp_path.glob("harness-*"))


DOUBLE = """#!/bin/sh
echo "$(basename $0) $*" >> LOG
case "$1 $2" in "ps --all" | "network ls" | "--noheader"*) [ -e "LOG.$1" ] || { echo 77 && touch "LOG.$1"; } ;; esac
"""


def test_its_compose_project_and_its_jobs_are_ended_by_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, log = tmp_path / "harness-trial-a.b_1_2_ff", tmp_path / "log"
    root.mkdir()
    for name in ("docker", "squeue", "scancel"):
        (tmp_path / name).write_text(DOUBLE.replace("LOG", str(log)))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(stopping, "ENGINES", ("docker",))
    assert stopping.stop(str(root)) == [], "no trial's folder"
    order: dict[str, Any] = {"in_place": None}
    (root / "job.json").write_text(json.dumps(order))
    assert stopping.stop(str(root)) == []
    order["in_place"] = {"folder": str(tmp_path), "variables": {}, "varied": "A", "stop": []}
    (root / "job.json").write_text(json.dumps(order))
    assert stopping.stop(str(root)) == ["container 77", "network 77", "job 77"]
    assert stopping.stop(str(root)) == [], "it is done"
    label = "--quiet --filter label=com.docker.compose.project=harness-trial-a-b_1_2_ff"
    assert log.read_text().splitlines()[:7] == [
        f"docker ps --all {label}",
        "docker rm --force --volumes 77",
        f"docker network ls {label}",
        "docker network rm 77",
        f"docker volume ls {label}",
        "squeue --noheader --format=%i --name=harness-trial-a-b_1_2_ff",
        "scancel 77",
    ]
    names = stopping.variables(str(root))
    assert names["COMPOSE_PROJECT_NAME"] == names["SBATCH_JOB_NAME"] == "harness-trial-a-b_1_2_ff"


def test_only_a_host_that_is_the_machine_itself_runs_it(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("def setup():\n    return lambda: None\n")
    text = (
        "version: 1\nseries: {flag: {vary: FLAG, versions: [a, b]}}\n"
        "hosts: {here: {engine: process}, box: {engine: docker}}\n"
        "scenarios: {x: {command: ['true']}, y: {script: s.py}}\n"
    )
    (tmp_path / "m.yaml").write_text(text)
    plan = select(load_matrix(tmp_path / "m.yaml", environ={}, index=FakeIndex(silent=True)), seed=1)
    left_out = {(cell.variant.scenario.name, cell.lane.host.name): cell.excluded for cell in plan.cells}
    assert left_out["x", "here"] is None
    assert str(left_out["x", "box"]).endswith("use engine: process")
    assert str(left_out["y", "here"]).startswith("only a command can be varied")


# ---------------------------------------------------------------- the file of results


@pytest.mark.parametrize(
    ("name", "text", "numbers"),
    [
        (
            "a.json",
            '{"loss": 0.3, "io": {"reads": 5, "ok": true}, "all": [[1], [2]], "name": "x"}',
            {"loss": 0.3, "io.reads": 5},
        ),
        ("a.json", '{"acc": [0.1, 0.4], "loss": [1, null], "jobs": [{"iops": 7}]}', {"acc": 0.4, "jobs.iops": 7}),
        ("a.json", '\ufeff[{"loss": 2, "auc": 0.1}, {"loss": 1}]', {"loss": 1, "auc": 0.1}),
        (
            "a.json",
            '{"runs": [{"name": "a", "ms": 1, "all": [4, 5]}, {"name": "b", "ms": 2}]}',
            {"runs.a.ms": 1, "runs.a.all": 5, "runs.b.ms": 2},
        ),
        ("a.json", '[{"name": "b", "ms": 2}, {"name": "a", "ms": 1}]', {"b.ms": 2, "a.ms": 1}),
        ("a.json", '{"runs": [{"name": "a", "ms": 1}, {"name": "a", "ms": 2}]}', {"runs.ms": 2}),
        (
            "a.json",
            '{"runs": [{"name": "a", "ms": 1}, {"name": 3, "ms": 2}, {"ms": 4}]}',
            {"runs.name": 3, "runs.ms": 4},
        ),
        ("a.jsonl", '{"loss": 2, "val": {"auc": 0.1}}\n\n{"loss": 1}\n', {"loss": 1, "val.auc": 0.1}),
        ("a.log", '{"loss": 2, "s": "a\u2028b"}\r\n{"loss": null}\r\n{"best": 1}', {"best": 1}),
        ("a.csv", "epoch,loss\n1,0.5\n2,0.25\n", {"epoch": 2.0, "loss": 0.25}),
        ("a.csv", "loss,0.5\n\nacc, 0.9\n", {"loss": 0.5, "acc": 0.9}),
        ("a.csv", "metric,value\nloss,0.5\nacc,0.9\n", {"loss": 0.5, "acc": 0.9}),
    ],
)
def test_the_numbers_of_a_file_are_named_by_their_keys_or_columns(
    tmp_path: Path, name: str, text: str, numbers: dict[str, float]
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert result_file.read(str(tmp_path / name)) == numbers


@pytest.mark.parametrize(
    ("name", "text"), [("a.csv", ""), ("a.csv", "loss"), ("a.json", "3"), ("a.json", '{"a": [[1]]}')]
)
def test_a_file_of_results_without_numbers_is_told(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match="has no numbers"):
        result_file.read(str(tmp_path / name))


def test_a_damaged_line_of_json_lines_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"loss": 1}\n{"loss": \n')
    with pytest.raises(ValueError, match="line 2 is no JSON"):
        result_file.read(str(tmp_path / "a.jsonl"))


def test_a_field_of_csv_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("score\n" + "x" * (1 << 18))
    with pytest.raises(ValueError, match="field larger than"):
        result_file.read(str(tmp_path / "a.csv"))


@pytest.mark.parametrize("text", ["{", "\udcff", "[" * 100_000, " " * (result_file.MOST_BYTES + 1)])
def test_a_damaged_file_of_results_is_no_bug_of_the_agent(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text, errors="surrogateescape")
    with pytest.raises(ValueError, match=r"\S"):
        result_file.read(str(tmp_path / "a.json"))


def test_a_pipe_or_a_folder_in_place_of_a_file_of_results_is_told_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "pipe.json", tmp_path):
        with pytest.raises(ValueError, match="is no file"):
            result_file.read(str(path))


def test_a_file_of_results_counts_only_if_this_launch_wrote_it(world: World, tmp_path: Path) -> None:
    """The file of the version before would otherwise be the result of one that writes none."""
    words = ["sh", "-c", 'test $FLAG = 2 || echo "{\\"loss\\": 0.5}" > out.json']
    first, second = cells(tmp_path, command=words, results="out.json")
    trial = ran(world, first)
    assert trial.trace is not None
    assert [values[-1] for values in trial.trace.metrics.values()] == [0.5]
    trial = ran(world, second)
    assert trial.trace is not None
    assert not trial.trace.metrics
    assert trial.message == trial.facts.unread == "results: out.json: was not written"


@pytest.mark.parametrize(("text", "why"), [('{"name": "x"}', "has no numbers"), ('{"a": 1}\\n{', "line 2 is no JSON")])
def test_a_file_of_results_in_which_no_numbers_are_found_is_told(
    world: World, tmp_path: Path, text: str, why: str
) -> None:
    words = ["sh", "-c", f"printf '{text}' > out.json"]
    assert ran(world, cells(tmp_path, command=words, results="out.json")[0]).message == f"results: out.json: {why}"
