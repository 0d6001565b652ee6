"""The benchmark of what a sweep sees: planted faults have the size that they claim, and answers are read correctly."""

from __future__ import annotations

import json
import os
import random
import runpy
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import planted
from benchmarks.planted_answers import accused, answer
from benchmarks.planted_programs.catalogue import HEALTHY, PLANTED, QUIET, Planted
from benchmarks.planted_resampled import Draws, Pool
from benchmarks.planted_sweeps import PROGRAMS, Swept, build_wheel, matrix_of, remove_traces_of, with_token
from harness.model import SIGNALS, CellRun, Trial
from tests.own_place import in_own_shm, own_shm
from tests.players.plans import a_cell

pytestmark = in_own_shm()  # programs that leave files in /dev/shm: a sweep at the same time would count them
STEPS = 1600
RUN = """
import json, os, sys, threading, time
sys.path[:0] = json.loads(sys.argv[1])
script = __import__(sys.argv[2])
script.STEP_US = 0
step = script.setup(program=sys.argv[3], amount=float(sys.argv[4]))

def children(zombies):
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as file:
                state, parent = file.read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        found += parent == str(os.getpid()) and (state == "Z") == zombies
    return found

def kib(*folders):
    #Of the trial's own folders all files, of the others those that are named after this launch.
    paths = [os.path.join(folder, name) for folder in folders for name in os.listdir(folder)]
    own = (".", os.environ["TMPDIR"])
    mine = [path for path in paths if os.path.dirname(path) in own or os.environ["PLANTED_TOKEN"] in path]
    return sum(map(os.path.getsize, mine)) / 1024

def settle():
    #Children that end take a moment.
    before = None
    while (now := children(True)) != before:
        before = now
        time.sleep(0.1)

def held():
    settle()
    return {
        "open_files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "processes": children(False),
        "zombies": children(True),
        "shm": kib("/dev/shm"),
        "disk": kib(".", os.environ["TMPDIR"], "/tmp"),
    }

count = int(sys.argv[5])
for _ in range(count):
    step()  # what is opened once is no growth
before = held()
results = [step() for _ in range(count)]
grown = {name: value - before[name] for name, value in held().items()}
print(json.dumps({"grown": grown, "last": repr(results[-1])}), flush=True)
os.killpg(0, 9)
"""


def held_by(program: Planted, folder: Path, *, bad: bool, amount: float, steps: int = STEPS) -> dict[str, Any]:
    """Return what this many steps of a program left behind, and what the last step returned."""
    wheel = build_wheel(folder / "wheels", "1.2", bad=bad)
    for name in ("cwd", "tmp"):
        (folder / name).mkdir()
    token, paths = secrets.token_hex(8), json.dumps([str(wheel), str(PROGRAMS)])
    done = subprocess.run(
        [*own_shm(), sys.executable, "-c", RUN, paths, program.family, program.name, str(amount), str(steps)],
        cwd=folder / "cwd", env={**os.environ, "PLANTED_TOKEN": token, "TMPDIR": str(folder / "tmp")},
        capture_output=True, text=True, start_new_session=True, timeout=60, check=False,
    )  # fmt: skip
    remove_traces_of(token)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


GROWING = [one for one in PLANTED if one.family == "growths" and one.signal not in ("memory", "worker_memory")]


@pytest.mark.parametrize("program", GROWING, ids=lambda one: one.name)
def test_a_program_loses_what_it_says_it_does(program: Planted, tmp_path: Path) -> None:
    """A fault of half the claimed size would make a good harness look blind."""
    amount = program.amount(3)
    grown = held_by(program, tmp_path, bad=True, amount=amount)["grown"]
    if program.name == "shm_without_name":
        assert grown["open_files"] * 16 == amount * STEPS  # 16 KiB each, with its file
    else:
        assert grown[program.signal] == pytest.approx(amount * STEPS)


@pytest.mark.parametrize("program", GROWING, ids=lambda one: one.name)
def test_a_good_version_loses_nothing(program: Planted, tmp_path: Path) -> None:
    """Otherwise the fault is in all versions, and no first bad version is right."""
    assert not any(held_by(program, tmp_path, bad=False, amount=program.amount(3))["grown"].values())


def test_values_are_worse_by_what_is_planted(tmp_path: Path) -> None:
    """As with growths, the claimed share must be the real share."""
    program = next(one for one in PLANTED if one.name == "items_drop")
    assert held_by(program, tmp_path, bad=True, amount=program.amount(3), steps=2)["last"] == "{'items': 850}"


@pytest.mark.parametrize("name", QUIET)
def test_a_healthy_program_runs(name: str, tmp_path: Path) -> None:
    """A program that fails in every version would be called good for the wrong reason."""
    program = next(one for one in HEALTHY if one.name == name)
    assert not any(held_by(program, tmp_path, bad=False, amount=1.0, steps=3)["grown"].values())


def test_every_program_of_the_files_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mechanism that is written but never run is a missing row that goes unnoticed."""
    monkeypatch.syspath_prepend(str(build_wheel(tmp_path / "wheels", "1.2", bad=True)))
    for family in {one.family for one in (*PLANTED, *HEALTHY)}:
        written = runpy.run_path(str(PROGRAMS / f"{family}.py"))["PROGRAMS"]
        assert set(written) == {one.name for one in (*PLANTED, *HEALTHY) if one.family == family}
    for name in [name for name in sys.modules if name.partition(".")[0] == "planted_carrier"]:
        del sys.modules[name]


def test_every_signal_that_can_be_planted_is() -> None:
    """Without a planted fault, nobody knows whether a signal works. GPUs, images, servers and results are not planted
    here, nor are quick steps, which name a version only under other load (`benchmarks/served.py`)."""
    elsewhere = {"gpu_peak", "pool_peak", "image_size", "other_result", "quick_steps"}
    elsewhere |= {"ready_time", "first_token", "token_time", "errors"}
    assert {one.signal for one in PLANTED} >= set(SIGNALS) - elsewhere
    assert len(HEALTHY) >= 15


def test_sizes_are_multiples_of_the_limit() -> None:
    """1, 1.5 and 3 times what a user's limit says."""
    by_name = {one.name: one for one in PLANTED}
    assert by_name["files"].amount(3) == pytest.approx(0.03)
    assert by_name["busy_5ms"].amount(1.5) == pytest.approx(0.15)
    assert by_name["setup_sleeps"].amount(1) == 0.5
    assert by_name["checksum"].sizes() == (None,)


# ---------------------------------------------------------------- answers


def finding(metric: str, **places: str) -> dict[str, Any]:
    return {
        "scenario": "s",
        "metric": metric,
        "kind": "first_bad",
        **(places or {"last_good": "1.1", "first_bad": "1.2"}),
    }


def swept(
    *findings: dict[str, Any], verdict: str = "flat", signals: dict[str, Any] | None = None, told: str = ""
) -> Swept:
    cells = [
        {"scenario": "s", "image": f"1.{number}", "verdict": verdict if number > 1 else "flat", "signals": signals}
        for number in range(4)
    ]
    return Swept(summary={"findings": list(findings), "cells": cells}, told=told, directory=Path())


ZOMBIES = Planted(name="z", family="growths", signal="zombies")


@pytest.mark.parametrize(
    ("sweep", "wanted"),
    [
        (swept(finding("zombies"), finding("step_time")), "named"),
        (swept(finding("step_time")), "seen"),
        (swept(finding("zombies", last_good="1.0", first_bad="1.2")), "seen"),
        (swept(verdict="crash"), "seen"),
        (swept(verdict="suspect"), "unsure"),
        (swept(signals={"zombies": {"seen": "blind"}}), "unsure"),
        (swept(signals={"disk": {"seen": "blind"}}), "missed"),
        (swept(), "missed"),
    ],
)
def test_an_answer_is_read_from_the_summary(sweep: Swept, wanted: str) -> None:
    """The table must not be kinder than the report: a wrong signal or place is not `named`."""
    assert answer(ZOMBIES, "s", sweep)[0] == wanted


def test_what_is_only_told_is_read_from_the_report() -> None:
    """A new line of the log that becomes a finding is a false alarm."""
    program = Planted(name="l", family="values", signal="log", told="falling back")
    assert answer(program, "s", swept(told="W falling back to CPU"))[0] == "named"
    assert answer(program, "s", swept())[0] == "missed"
    assert answer(program, "s", swept(finding("log"), told="falling back"))[0] == "seen"


def test_any_finding_accuses_a_healthy_program() -> None:
    """A blind signal is not an accusation: it is an honest answer, and is listed separately."""
    blind = swept(signals={"step_time": {"seen": "blind"}})
    assert accused(HEALTHY[0], "s", swept(finding("disk")))[0] == "accused"
    assert accused(HEALTHY[0], "s", swept(verdict="suspect"))[0] == "unsure"
    assert accused(HEALTHY[0], "s", blind) == ("good", "blind: step_time")


def test_the_table_counts_by_size(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The published share, with its interval, leaves out sweeps that were refused."""
    rows = [
        planted.Row(signal="disk", program="p", size=3.0, answer=one, said="") for one in ("named", "missed", "skipped")
    ]
    text = planted.table(rows)
    assert "size 3 named               1 of    2  0.500 (0.013 to 0.987)" in text
    assert "1 skipped" in text
    assert "accused" not in text
    monkeypatch.setattr(sys, "argv", ["planted", "--signals", "no_such"])
    with pytest.raises(SystemExit, match="no signal or program is called no_such"):
        planted.chosen(planted.arguments())


def test_a_matrix_has_a_scenario_for_each_size() -> None:
    """Sizes in one scenario would count among each other's comparisons."""
    program = next(one for one in PLANTED if one.name == "items_drop")
    matrix = with_token(matrix_of(program, program.sizes(), {}), "t")
    assert list(matrix["scenarios"]) == ["items_drop-1", "items_drop-1.5", "items_drop-3"]
    first = matrix["scenarios"]["items_drop-1"]
    assert first["metrics"] == {"items": {"drop": "5%"}}
    assert first["environment"] == {"PLANTED_TOKEN": "t"}


# ---------------------------------------------------------------- quiet sweeps


def run_of(version: str) -> CellRun:
    return CellRun(cell=a_cell(version))


def test_a_made_round_has_each_launch_of_a_real_one_once() -> None:
    """Otherwise equal launches would count as launches that agree."""
    runs = [run_of(version) for version in ("1.0", "1.1", "1.2")]
    real = [
        [Trial(cell_id="x", number=1, key="k", end="completed", message=f"{number} {place}") for place in range(3)]
        for number in range(3)
    ]
    facts = {
        run.cell.id: Trial(cell_id=run.cell.id, number=1, key=run.cell.image.version, end="completed") for run in runs
    }
    draws = Draws(pool=Pool(first=real[:1], later=real[1:], facts=facts), rng=random.Random(1))
    made = {number: [draws.launch(run, number) for run in runs] for number in range(3)}
    assert {one.message for one in made[0]} == {"0 0", "0 1", "0 2"}
    assert {one.message for number in (1, 2) for one in made[number]} == {
        one.message for each in real[1:] for one in each
    }
    assert all(len({one.message[0] for one in launches}) == 1 for launches in made.values())
    assert [one.key for one in made[1]] == ["1.0", "1.1", "1.2"]
    assert {one.round for one in made[2]} == {2}


# ---------------------------------------------------------------- a row of the benchmark


def test_a_planted_crash_is_named_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions are built, installed without an index, swept and read; the temporary folder is removed."""
    target = tmp_path / "rows.json"
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(planted.tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(sys, "argv", ["planted", "--signals", "raises_in_step", "--json", str(target)])
    assert planted.main() == 0
    (row,) = json.loads(target.read_text())
    assert (row["answer"], row["said"]) == ("named", "outcome 1.1>1.2")
    assert not list((tmp_path / "tmp").iterdir())
