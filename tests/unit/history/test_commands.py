"""`harness runs` and `harness history`: what a user reads, and what a program gets."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness import file_locks
from harness.cli import cli
from harness.errors import UsageError
from harness.history import printing
from harness.history.database import FILE, TABLES
from harness.history.selection import list_drifts, remember
from harness.model import Effect, SignalVerdict, VerdictName
from harness.report import finding_boxes
from harness.store.trial_json import FOLDER, SUFFIX
from tests.players import build
from tests.players.pages import HOSTILE
from tests.players.stored_run import write_judged
from tests.unit.history import made

DOCS = Path(__file__).parents[3] / "docs/history.md"


def harness(out: Path, *arguments: str) -> Result:
    done = CliRunner().invoke(cli, [*arguments, "--in", str(out)])
    if done.exception and not isinstance(done.exception, UsageError | SystemExit):
        raise done.exception
    return done


def test_runs_are_listed_and_filtered(tmp_path: Path) -> None:
    made.three_days(tmp_path)
    made.write_run(tmp_path, 4, {"1.0": made.good()}, matrix="other")
    assert [line.split()[:4] for line in harness(tmp_path, "runs", "--last", "2").stdout.splitlines()[1:]] == [
        ["2026-03-03", "04:00", "nightly/20260303T040000Z-0003", "regression"],
        ["2026-03-04", "04:00", "other/20260304T040000Z-0004", "ok"],
    ]
    told = json.loads(harness(tmp_path, "runs", "--json", "--matrix", "nightly", "--verdict", "ok").stdout)
    assert [run["path"] for run in told] == ["nightly/20260301T040000Z-0001"]
    assert harness(tmp_path, "runs", "--since", "1h").stdout == "no runs\n"
    assert len(harness(tmp_path, "runs", "--csv").stdout.splitlines()) == 5


def test_a_run_that_was_killed_is_listed_as_interrupted(tmp_path: Path) -> None:
    """`harness runs` did not have it, although the next run takes its launches over."""
    path = made.write_run(tmp_path, 1, {"1.0": made.good(), "1.1": made.good()})
    for file in path.iterdir():
        if file.is_file() and file.name != "plan.json":
            file.unlink()
    (path / FOLDER / f"app-1.0-1{SUFFIX}").write_text("{}")
    handle = os.open(path, os.O_RDONLY)
    file_locks.try_lock(handle, shared=True)
    assert harness(tmp_path, "runs").stdout == "no runs\n"  # it still goes on
    os.close(handle)
    _, row, told = harness(tmp_path, "runs").stdout.splitlines()
    assert harness(tmp_path, "runs", "--verdict", "interrupted").stdout.splitlines()[1:] == [row, told]
    assert row.split()[:5] == ["2026-03-01", "04:00", "nightly/20260301T040000Z-0001", "interrupted", "2"]
    assert told.endswith(": killed before it wrote a result; 1 launch is kept for the next run of the same sweep")


@pytest.mark.parametrize("memory", ["flat", "suspect"])
def test_a_cell_that_is_bad_by_its_step_time_is_not_a_bad_flat(tmp_path: Path, memory: VerdictName) -> None:
    slow = replace(made.good(0.030), verdicts=(memory,))
    signals = {**slow.signals, "step_time": replace(slow.signals["step_time"], seen="bad")}
    made.write_run(tmp_path, 1, {"1.0": made.good(), "1.1": replace(slow, signals=signals)})
    lines = harness(tmp_path, "history").stdout.splitlines()
    assert [line.split()[1:4] for line in lines[2:4]] == [["✓", "flat", "0.0002"], ["✗", "step", "time"]]
    assert "✗ step time" in harness(tmp_path, "history", "--signal", "peak_memory").stdout


def test_rates_are_told_by_what_was_counted(tmp_path: Path) -> None:
    made.write_run(tmp_path, 1, {"1.0": replace(made.good(), per="line"), "1.1": replace(made.bad(), per="line")})
    shown = harness(tmp_path, "history").stdout
    harness(tmp_path, "publish", "--out", str(tmp_path / "site"))
    page = (tmp_path / "site" / "m-nightly" / "series-app.html").read_text()
    for told in (shown, page):
        assert "7.8 KiB/line" in told
        assert "/step" not in told


def test_a_slower_server_has_slower_requests(tmp_path: Path) -> None:
    found = made.begins("1.0", "1.1", metric="step_time", verdict="slower", effect=Effect(value=1.5, unit="ratio"))
    cells = {version: replace(made.good(), per="request") for version in ("1.0", "1.1")}
    made.write_run(tmp_path, 1, cells, findings=[found])
    assert "slower requests since 1.1" in harness(tmp_path, "history").stdout
    harness(tmp_path, "publish", "--out", str(tmp_path / "site"))
    assert "slower requests since 1.1" in (tmp_path / "site" / "findings.html").read_text()


def test_runs_counts_the_findings_that_the_report_shows(tmp_path: Path) -> None:
    """The report merges findings of several variants at one version: `runs` listed six findings, the report two."""
    lanes, versions = [build.OLD, build.NEW], {"1.0": made.good(), "1.1": made.bad()}
    of = build.series("app", list(versions))
    findings = [
        build.finding(of, lane, variant, before="1.0", after="1.1") for lane in lanes for variant in build.SIGNAL
    ]
    judged = build.run([(of, lanes, build.SIGNAL)], lambda version, *_: versions[version], findings=findings)
    shown = len(finding_boxes.boxes(judged))
    assert shown < len(findings), "or there would be nothing to merge"
    named = tuple(replace(cell, trials=()) for cell in judged.cells)
    write_judged(replace(judged, cells=named), tmp_path / "nightly" / "20260301T040000Z-0001")
    (run,) = json.loads(harness(tmp_path, "runs", "--json").stdout)
    assert run["findings"] == shown


def test_history_shows_images_days_and_the_life_of_findings(tmp_path: Path) -> None:
    """The example in the documentation is what the program prints."""
    made.three_days(tmp_path)
    shown = harness(tmp_path, "history", "app").stdout
    example = DOCS.read_text().split("```\n")[3]
    assert shown == f"{example}\n"
    days = harness(tmp_path, "history", "--days").stdout
    assert [line.split()[:3] for line in days.splitlines()[2:8]] == [
        [image, mark, verdict]
        for image, mark, verdict in (
            ("1.0", "✓", "flat"), ("1.1", "✓", "flat"), ("1.1", "✓", "flat"),
            ("1.2", "✗", "leak"), ("1.2", "✗", "leak"), ("1.3", "✓", "flat"),
        )
    ]  # fmt: skip
    assert "1.0 " not in harness(tmp_path, "history", "--last", "2").stdout


def test_history_says_what_was_never_measured_and_what_follows_from_another_finding(tmp_path: Path) -> None:
    """A version without a launch was "measured once"; a leak caused by threads that pile up looked
    like a second fault.
    """
    threads = made.begins("1.0", "1.1", metric="threads", verdict="growth", effect=None)
    leak = made.begins("1.0", "1.1", consequence_of="threads")
    never = build.unknown("untested", "no launch finished")
    made.write_run(tmp_path, 1, {"1.0": made.good(), "1.1": made.bad(), "1.2": never}, findings=[threads, leak])
    told = harness(tmp_path, "history").stdout
    assert [line.split("  ")[-1].strip() for line in told.splitlines()[2:5]] == [
        "once, 2026-03-01", "once, 2026-03-01", "never",
    ]  # fmt: skip
    assert "7.84 (7.83 to 7.85) KiB/step; a consequence of threads; open" in told
    assert told.count("a consequence") == 1


def test_history_says_that_only_the_whole_run_was_judged(tmp_path: Path) -> None:
    """It said `flat` of memory that was not judged, and had no figure of the run."""
    run_time = SignalVerdict(seen="good", value=2.5)
    whole = replace(made.good(), signals={"outcome": SignalVerdict(seen="good"), "run_time": run_time})
    made.write_run(tmp_path, 1, {"1.0": whole, "1.1": made.good()})
    said = harness(tmp_path, "history").stdout
    assert "✓ whole run" in said
    assert "2.50 s" in said
    assert harness(tmp_path, "history", "--signal", "run_time").stdout.count("✓ flat") == 1


def test_history_for_programs_has_every_measurement(tmp_path: Path) -> None:
    made.three_days(tmp_path)
    (told,) = json.loads(harness(tmp_path, "history", "--json").stdout)
    assert (told["series"], told["params"], told["images"]) == ("app", {"size": 8}, ["1.0", "1.1", "1.2", "1.3"])
    assert [one["image"] for one in told["measured"]] == ["1.0", "1.1", "1.1", "1.2", "1.2", "1.3"]
    (life,) = told["findings"]
    assert (life["status"], life["begins"]["after"], life["ends"]["after"]) == ("fixed", "1.2", "1.3")
    lines = list(csv.DictReader(io.StringIO(harness(tmp_path, "history", "--csv", "--signal", "memory").stdout)))
    assert [line["memory.seen"] for line in lines] == ["good", "good", "good", "bad", "bad", "good"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("history", "ap"), "no series 'ap'; known: app"),
        (("history", "--matrix", "x"), "--matrix: no runs of 'x'; known: nightly"),
        (("history", "--host", "x"), "no history matches; hosts: local; variants: pop size=8"),
        (("history", "--signal", "x"), "--signal: no signal 'x'"),
        (("history", "--since", "x"), "--since: 'x' is not an age; write 12h, 30d or 8w"),
        (("history", "--csv", "--json"), "--csv and --json: give only one"),
        (("history", "--all", "--last", "1"), "--all and --last: give only one"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    made.three_days(tmp_path)
    done = harness(tmp_path, *arguments)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith(told)


def test_without_runs_it_says_so(tmp_path: Path) -> None:
    assert "no such folder" in str(harness(tmp_path / "none", "runs").exception)
    assert harness(tmp_path, "runs").stdout == "no runs\n"
    assert "no run has measured anything yet" in str(harness(tmp_path, "history").exception)


@pytest.mark.parametrize("command", ["runs", "history", "publish --out site"])
def test_a_run_s_own_folder_is_not_said_to_hold_no_runs(command: str, tmp_path: Path) -> None:
    path = made.write_run(tmp_path, 1, {"1.0": made.good()})
    before = sorted(path.iterdir())
    told = f"--in {path}: is a run itself, not a folder of runs; show it with: harness report {path}"
    assert str(harness(path, *command.split()).exception) == told
    assert sorted(path.iterdir()) == before, "no index is left in it"
    above = path.parent
    told = f"--in {above}: its runs are directly in it, as those of one matrix; name the folder above it"
    assert str(harness(above, *command.split()).exception) == told


@pytest.mark.parametrize("text", [text for text in HOSTILE if "/" not in text and "\0" not in text])
def test_names_that_try_to_act_are_text(tmp_path: Path, text: str) -> None:
    name = f"s{text}"
    made.write_run(tmp_path, 1, {"1.0": made.good(), f"2{text}": made.bad()}, series=name, variant=build.variant(name))
    for arguments in (("history",), ("history", "--days"), ("runs",)):
        shown = harness(tmp_path, *arguments).stdout
        assert all(line.isprintable() for line in shown.splitlines())
    line = harness(tmp_path, "history", "--csv").stdout.splitlines()[1]
    assert not line.startswith(("=", "+", "-", "@"))
    json.loads(harness(tmp_path, "history", "--json").stdout)


def test_an_index_that_cannot_be_kept_ends_no_sweep(tmp_path: Path) -> None:
    made.three_days(tmp_path)
    (tmp_path / FILE).symlink_to("/dev/null")
    said: list[str] = []
    remember(tmp_path, say=said.append)
    assert said[0].startswith("the index does not have this run yet: ")


def test_an_index_of_no_run_is_removed_if_it_is_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    remember(tmp_path, say=print)
    assert (tmp_path / FILE).exists()
    (tmp_path / "mine").unlink()
    remember(tmp_path, say=print)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- the page


def test_every_table_and_column_is_documented() -> None:
    """A user who writes a query has only the page to go by."""
    page = DOCS.read_text()
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for table in TABLES:
            connection.execute(table)
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            (line,) = [line for line in page.splitlines() if line.startswith(f"| `{table}` |")]
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            assert [column for column in columns if f"`{column}`" not in line] == []


def test_the_queries_of_the_page_run(tmp_path: Path) -> None:
    made.three_days(tmp_path)
    harness(tmp_path, "runs")
    queries = DOCS.read_text().split("```sql\n")[1:]
    assert queries
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        for text in queries:
            connection.execute(text.split("```")[0]).fetchall()


# ---------------------------------------------------------------- drift


def test_a_slow_loss_over_the_runs_of_a_watch_is_told(tmp_path: Path) -> None:
    """No single run has a finding: each version is 1 % slower than the one before."""
    for day in range(1, 13):
        names = dict.fromkeys([0, day - 1, day])
        scatter = [0.002 * ((7 * (day + number)) % 5 - 2) for number in names]
        verdicts = {
            f"1.{number}": made.good(0.0143 * 1.01**number * (1 + 0.1 * (day % 3)) * (1 + noise))
            for number, noise in zip(names, scatter, strict=True)
        }
        made.write_run(tmp_path, day, verdicts)
    shown = harness(tmp_path, "history", "app").stdout
    assert "step time drifts from 1.0 to 1.12: +12" in shown
    assert "over 13 versions in 12 runs" in shown
    (told,) = json.loads(harness(tmp_path, "history", "--json").stdout)
    (drift,) = told["drifts"]
    assert (drift["signal"], drift["first"], drift["last"]) == ("step_time", "1.0", "1.12")
    (history,) = list_drifts(tmp_path, matrix="nightly", say=print)
    assert (history.series, [one.signal for one in history.drifts]) == ("app", ["step_time"])


def test_runs_that_took_their_launches_over_do_not_count_twice(tmp_path: Path) -> None:
    """A sweep of known images repeats figures that were measured once."""
    for day in range(1, 13):
        made.write_run(tmp_path, day, {f"1.{number}": made.good(0.0143 * 1.01**number) for number in (0, 1, 2)})
    assert list_drifts(tmp_path, matrix="nightly", say=print) == []


@pytest.mark.parametrize(
    ("rates", "told"),
    [((-2.0, 3.0, 1.0), "1 KiB/step (0 KiB/step to 3 KiB/step)"), ((2.0, -1.0), "no growth (0 KiB/step to 2 KiB/step)"),
     ((-2.0, -1.0), "no growth")],
)  # fmt: skip
def test_the_end_of_a_range_of_growth_is_a_number(rates: tuple[float, ...], told: str) -> None:
    """A range read `1 KiB/step (no growth to 3 KiB/step)`."""
    some: Any = [SimpleNamespace(verdict=SimpleNamespace(of=lambda _, v=rate: SimpleNamespace(value=v), per="step"))
                 for rate in rates]  # fmt: skip
    assert printing._figure(some, "memory") == told
