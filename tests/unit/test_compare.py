"""Separate runs, read back from their directories and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from harness.cli import cli
from harness.cli.results import since_changes, write_result
from harness.errors import UsageError
from harness.flows.compare import compare_runs
from harness.judge.unpaired import ComparedCell, compare_cell, machine_changes, ratio_interval
from harness.model import (
    CellResult,
    CellVerdict,
    Column,
    Comparison,
    Lane,
    LaunchedImage,
    Limits,
    Measured,
    Metric,
    Pair,
    Series,
    SignalState,
    SignalVerdict,
    Steps,
    Trace,
    Trial,
    merged_versions,
)
from harness.model.measured import End, Facts
from harness.report.terminal.compare_output import render, since_text, standing_text, verdict_text
from harness.report.terminal.compare_output import to_json as comparison_json
from harness.report.text.headline import sentence
from harness.store import RunDirectory
from harness.store.saved_run import read_result
from tests.nightly import many
from tests.players import build, faults
from tests.players.faults import NEW, OLD, lane
from tests.players.stored_run import write_judged
from tests.players.trials import changed, facts_of, made_trial

STEP_S = 0.002
OLD_TAGS = faults.pulled("ngc", ["20.12", "22.12"])


def trial(entry: CellResult, number: int, *, run: str, step_s: float, machine: str, seed: int) -> Trial:
    rng = np.random.default_rng([seed, number, *entry.cell.image.version.encode()])
    steps = np.arange(1.0, 521.0)
    pace = step_s * float(np.exp(rng.normal(0, 0.01)))
    rate = entry.verdict.of("memory").value or 0.0
    columns = {"step_s": pace * np.exp(rng.normal(0, 0.01, len(steps))), "rss_kib": 30_000 + np.round(rate * steps)}
    wheels = {"numpy": "cp38-cp38-manylinux_2_17_x86_64", "six": "py2.py3-none-any"}
    return made_trial(
        cell_id=entry.cell.id, number=number, run=run, round=number, last_step=520, steps_asked=520,
        started=f"{run} {entry.cell.id} {number}", trace=Trace(step=steps, columns=columns),
        image=LaunchedImage(digest=f"sha256:{entry.cell.image.version}"),
        facts=Facts(agent="1", python="3.8", probes=["rss"], wheels=wheels),
        fingerprint={"name": machine, "cpu": "x", "cpus": 2, "architecture": "x86_64"},
    )  # fmt: skip


class Runs:
    """Writes runs below a folder, as a sweep does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(
        self,
        name: str,
        square: faults.Square,
        *,
        of: Series = faults.NGC,
        step_s: float = STEP_S,
        machine: str | None = None,
        change: Callable[[Trial], Trial] = lambda trial: trial,
        payload: str = "script",
        replicates: bool = False,
    ) -> Path:
        result = faults.run(square, of=of)
        path = write_judged(result, self.folder / name, payload=lambda _: payload)
        for entry in result.cells:
            where = machine or entry.cell.lane.host.name
            for number in range(entry.verdict.trials):
                for replicate in (False, True)[: 1 + replicates]:
                    one = trial(entry, number, run=name, step_s=step_s, machine=where, seed=replicate + 2 * len(name))
                    named = replace(one, cell_id=f"{one.cell_id}-replicate" if replicate else one.cell_id)
                    RunDirectory(path).write_trial(change(named), entry.cell)
        return path


def seen(facts: Mapping[str, Any] = {}, **fingerprint: Any) -> Callable[[Trial], Trial]:
    """Return a change that adds facts and parts of the fingerprint to a trial."""
    return lambda one: replace(
        one, facts=facts_of({**asdict(one.facts), **facts}), fingerprint={**one.fingerprint, **fingerprint}
    )


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def measured(found: Comparison, metric: Metric, image: str) -> Measured:
    return next(one for pair in found.pairs if pair.image == image for one in pair.measured if one.metric == metric)


def test_two_machines_without_a_network_between_them_get_the_sentence(runs: Runs) -> None:
    old = runs.write("a", {OLD: "gb"}, of=OLD_TAGS)
    new = runs.write("b", {NEW: "ib"}, of=OLD_TAGS, step_s=STEP_S * 2)
    found = compare_runs([old, new])
    assert found.together is not None
    assert sentence(found.together) == (
        "signal_ops leaks 24 KiB/step since 22.12, on both cards; not the RTX 4090's fault; layer: native heap."
    )
    times = measured(found, "step_time", "22.12")
    assert times.ratio == pytest.approx(2, rel=0.03)
    assert times.standing == "more"
    assert measured(found, "memory", "22.12").standing == "both bad"
    assert found.exit_code == 1


def test_the_story_as_it_was_names_the_cell_that_would_tell(runs: Runs) -> None:
    """No image ran on both machines: there is no ratio to show, but the missing cell can be named."""
    old = runs.write("a", {OLD: "g"}, of=faults.pulled("ngc", ["20.12"]))
    found = compare_runs([old, runs.write("b", {NEW: "b"}, of=faults.pulled("ngc", ["22.12"]))])
    assert found.pairs == ()
    assert found.exit_code == 1
    assert found.together is not None
    assert sentence(found.together) == (
        "signal_ops leaks 24 KiB/step in 22.12, on the RTX 4090; whether the image or the RTX 4090 "
        "is at fault is undecided: run 22.12 on the RTX 3090 to settle it; layer: native heap."
    )


def test_runs_of_other_scripts_say_nothing_together(runs: Runs) -> None:
    old = runs.write("a", {OLD: "g"}, of=faults.pulled("ngc", ["20.12"]))
    new = runs.write("b", {NEW: "b"}, of=faults.pulled("ngc", ["22.12"]), payload="edited")
    with pytest.raises(UsageError, match="nothing to compare"):
        compare_runs([old, new])


def test_the_hosts_of_one_run_stand_side_by_side(runs: Runs) -> None:
    found = compare_runs([runs.write("a", {OLD: "ggb", NEW: "ggb"})])
    assert [(pair.one.label, pair.other.label) for pair in found.pairs] == [("old/RTX 3090", "new/RTX 4090")] * 3
    assert measured(found, "outcome", "20.12").standing == "same"


def test_cells_that_one_run_alone_has_are_counted(runs: Runs) -> None:
    old = runs.write("a", {OLD: "gb"}, of=OLD_TAGS)
    new = runs.write("b", {NEW: "ibb"}, of=faults.pulled("ngc", ["20.12", "22.12", "23.02"]))
    notes = compare_runs([old, new]).notes
    assert "2 cells were measured only in one of old/RTX 3090 and new/RTX 4090; 1 in both" in notes


def test_last_month_against_this_month_is_the_same_machine(runs: Runs) -> None:
    """A day is not a lane: nothing is blamed, but a slower version on the same machine is bad."""
    before = runs.write("january", {OLD: "ggg"}, replicates=True)
    after = runs.write("february", {OLD: "ggg"}, step_s=STEP_S * 1.3, replicates=True)
    found = compare_runs([before, after])
    assert found.together is None
    times = measured(found, "step_time", "22.12")
    assert times.standing == "more"
    assert times.ratio == pytest.approx(1.3, rel=0.03)
    assert times.floor is not None
    assert found.exit_code == 1
    assert [column.label for column in found.columns] == ["old/RTX 3090 (january)", "old/RTX 3090 (february)"]


def with_driver(driver: str) -> Callable[[Trial], Trial]:
    return seen({"gpus": [{"uuid": "GPU-1", "name": "RTX 3090", "driver": driver}]}, kernel="6.8.0")


@pytest.mark.parametrize(
    ("new", "slow", "told"),
    [
        ("580", ("20.12", "22.12"), "step time: takes * % longer per step in both cells on host old since driver 580, "
                                    "instead of driver 535; not the images' fault"),
        ("580", ("22.12",), "step time: takes * % longer per step in 1 of 2 cells on host old since driver 580, "
                            "instead of driver 535; good with 20.12: it takes both the image and the machine's "
                            "driver 580"),
        ("580", (), None),
        ("535", ("20.12", "22.12"), None),
    ],
)  # fmt: skip
def test_what_a_new_driver_made_worse_is_told_apart_from_the_images(
    runs: Runs, new: str, slow: Sequence[str], told: str | None
) -> None:
    """A new driver was only listed among the differences: who looked at each image saw no image change."""

    def slower(one: Trial) -> Trial:
        assert one.trace is not None
        factor = 1.3 if one.image.digest.removeprefix("sha256:") in slow else 1.0
        columns = {**one.trace.columns, "step_s": one.trace.columns["step_s"] * factor}
        return with_driver(new)(replace(one, trace=replace(one.trace, columns=columns)))

    before = runs.write("a", {OLD: "gg"}, of=OLD_TAGS, change=with_driver("535"))
    found = compare_runs([before, runs.write("bb", {OLD: "gg"}, of=OLD_TAGS, change=slower)])
    said = [since_text(change, found.pairs) for change in found.since]
    assert [fnmatch(text, told or "") for text in said] == [True] * (told is not None)
    assert [each["sentence"] for each in comparison_json(found)["since"]] == said


def test_a_sweep_tells_what_became_worse_since_a_new_driver_or_why_it_cannot(runs: Runs) -> None:
    """A refused comparison was swallowed, though a line at the start had promised it, and a sweep in which all images
    were slower than on the old driver ended with 0."""
    before = runs.write("a", {OLD: "gg"}, of=OLD_TAGS, change=with_driver("535"))
    after = runs.write("bb", {OLD: "gg"}, of=OLD_TAGS, change=with_driver("580"), step_s=1.3 * STEP_S)
    other = runs.write("cc", {OLD: "gg"}, of=OLD_TAGS, payload="other")
    result, said = replace(read_result(after), verdict="ok", started="", before=(other, before)), list[str]()
    (told,) = since_changes(result, said.append)
    assert fnmatch(
        told,
        "step time: takes * % longer per step in both cells on host old since driver 580, instead of driver 535; *",
    )
    assert fnmatch("\n".join(said), f"not compared with the run {other}: not comparable: *script*")
    assert [replace(result, since=(told,)).exit_code, result.exit_code] == [1, 0]
    assert replace(result, since=(told,), verdict="interrupted").exit_code == 130
    write_result(replace(result, since=(told,)), RunDirectory(after))
    headed = sentence(read_result(after))
    assert fnmatch(headed, "Step time: takes * Nothing else bad: *"), "it was below `Nothing bad: both cells are good`"


def test_a_leak_since_a_new_driver_is_one_fault_and_no_failure(runs: Runs) -> None:
    """It was also told as `fails in all cells` and as a higher peak, which is what the leak takes."""
    before = runs.write("a", {OLD: "gg"}, of=OLD_TAGS, change=with_driver("535"))
    found = compare_runs([before, runs.write("b", {OLD: "bb"}, of=OLD_TAGS, change=with_driver("580"))])
    assert [since_text(change, found.pairs) for change in found.since] == [
        "memory: leaks 24 KiB/step in both cells on host old since driver 580, instead of driver 535; "
        "not the images' fault"
    ]
    (ready,) = comparison_json(found)["since"]
    assert (ready["metric"], ready["ratio"]) == ("memory", None)


def test_an_image_that_failed_before_a_new_driver_too_is_not_good_with_it(runs: Runs) -> None:
    """An image that crashed on both days was named as good, so that the fault seemed to take the other image, too."""
    before = runs.write("a", {OLD: "gg"}, of=OLD_TAGS, change=with_driver("535"))
    found = compare_runs([before, runs.write("b", {OLD: "gg"}, of=OLD_TAGS, change=with_driver("580"))])
    failing = {"20.12": (build.crash(), build.crash()), "22.12": (build.flat(), build.crash())}
    pairs = [
        replace(
            pair,
            verdicts=failing[pair.image],
            measured=(
                Measured(
                    metric="outcome", one=None, other=None, standing="both bad" if pair.image == "20.12" else "worse"
                ),
            ),
        )
        for pair in found.pairs
    ]
    (change,) = machine_changes(pairs, ["driver 535"], ["driver 580"])
    assert ([pair.image for pair in change.worse], change.alike) == (["22.12"], ())


def test_what_is_equal_is_not_called_different(runs: Runs) -> None:
    found = compare_runs(
        [runs.write("a", {OLD: "ggg"}, replicates=True), runs.write("bc", {OLD: "ggg"}, replicates=True)]
    )
    assert {one.standing for pair in found.pairs for one in pair.measured if one.metric == "step_time"} == {"same"}
    assert found.exit_code == 0


def _taken_over(one: Trial) -> Trial:
    return replace(one, run="a", started=f"a{one.started[1:]}")


def test_trials_that_the_later_run_took_over_are_not_measured_twice(runs: Runs) -> None:
    first = runs.write("a", {OLD: "ggg"})
    second = runs.write("b", {OLD: "ggg"}, change=_taken_over)
    with pytest.raises(UsageError, match=r"ngc 20.12, signal_ops: measured once: .*took over .*--fresh"):
        compare_runs([first, second])


def test_cells_that_the_later_run_took_over_are_told_in_one_line_beside_what_it_measured(runs: Runs) -> None:
    """They were left out silently."""
    first = runs.write("a", {OLD: "ggg"})
    newest = faults.NGC.images[-1].version
    second = runs.write(
        "b", {OLD: "ggg"}, change=lambda one: one if one.image.digest == f"sha256:{newest}" else _taken_over(one)
    )
    (code, shown) = called(str(first), str(second))
    text = " ".join(shown.split())
    cells = len(faults.NGC.images) - 1
    assert f"{cells} cells of old/RTX 3090 (a) and old/RTX 3090 (b): measured once: the later run took over" in text
    assert (code, text.count("measured once"), "not comparable" in text) == (0, 1, False)


@pytest.mark.parametrize(
    ("change", "payload", "text"),
    [
        (lambda one: replace(one, image=replace(one.image, digest="sha256:other")), "script", "sha256:other"),
        (lambda one: replace(one, asked=replace(one.asked, steps=400)), "script", "steps 520 and 400"),
        (seen({"agent": "2"}), "script", "agent version 1 and 2"),
        (seen({"probes": ["rss", "heap"]}), "script", "probes"),
        (lambda one: one, "edited", "script or command, its files or the agent: script and edited"),
        (
            seen({"wheels": {"numpy": "py3-none-any", "six": "py3-none-any"}}),
            "script",
            "wheel of numpy compiled (cp38-cp38-manylinux_2_17_x86_64) and pure Python (py3-none-any)",
        ),
    ],
)
def test_what_differs_in_more_than_host_and_day_is_refused_by_field(
    runs: Runs, change: Callable[[Trial], Trial], payload: str, text: str
) -> None:
    first, second = runs.write("a", {OLD: "ggg"}), runs.write("b", {NEW: "ggg"}, change=change, payload=payload)
    with pytest.raises(UsageError, match="not comparable") as refused:
        compare_runs([first, second])
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("name", "limit", "told"),
    [
        ("memory", 0.05, r'limits .*"memory": 0\.5.*"memory": 0\.05'),
        ("step_time", 0, r"plan\.json: .*a limit is above zero, not [^\n]*\Z"),  # damaged, or changed by hand
        ("step_time", -0.5, r"plan\.json: .*a limit is above zero, not [^\n]*\Z"),
    ],
)
def test_limits_of_the_matrix_must_be_the_same(runs: Runs, name: str, limit: float, told: str) -> None:
    first, second = runs.write("a", {OLD: "ggg"}), runs.write("b", {NEW: "ggg"})
    plan = json.loads((second / "plan.json").read_text())
    plan["scenarios"][0]["limits"]["signals"][name] = limit
    (second / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(UsageError, match=told):
        compare_runs([first, second])


def test_one_image_that_differs_is_refused_and_the_rest_compared(runs: Runs) -> None:
    def rebuilt(one: Trial) -> Trial:
        return (
            replace(one, image=replace(one.image, digest="sha256:new")) if one.image.digest == "sha256:22.12" else one
        )

    found = compare_runs([runs.write("a", {OLD: "ggb"}), runs.write("b", {NEW: "ggb"}, change=rebuilt)])
    assert [bool(pair.refused) for pair in found.pairs] == [False, False, True]
    assert found.together is None
    assert any("1 of 3 cells are not comparable" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("plan.json", None, r"plan\.json: No such file"),
        ("plan.json", "{", r"plan\.json: is damaged: not JSON: .*; copy the run's directory"),
        ("result.json", "[]", r"result\.json: not an object; the file is"),
        ("plan.json", '{"schema": 4}', "matrix: Field required"),
        ("result.json", '{"schema": 5, "cells": 1}', "verdict: "),
    ],
)
def test_what_is_no_run_is_said_with_its_file(runs: Runs, name: str, content: str | None, text: str) -> None:
    good, bad = runs.write("a", {OLD: "ggg"}), runs.write("b", {NEW: "ggg"})
    if content is None:
        (bad / name).unlink()
    else:
        (bad / name).write_text(content)
    with pytest.raises(UsageError, match=text):
        compare_runs([good, bad])


@pytest.mark.parametrize("gpus", [None, 1, ["x"], {}])
def test_trials_that_name_their_gpus_otherwise_are_compared(runs: Runs, gpus: object) -> None:
    """A copied directory may contain anything there; it was a traceback."""
    assert compare_runs([runs.write("a", {OLD: "ggg"}), runs.write("b", {OLD: "ggg"}, change=seen(gpus=gpus))]).pairs


def test_what_two_machines_differ_in_is_told_with_both_values(runs: Runs) -> None:
    """They may differ, because that is what is compared; without the list, they would pass for two equal machines."""

    def on(kernel: str, driver: str, memory_bytes: int) -> Callable[[Trial], Trial]:
        card = {"uuid": f"GPU-{kernel}", "name": "RTX 3090", "driver": driver}
        return seen({"gpus": [card]}, kernel=kernel, memory_bytes=memory_bytes)

    old = runs.write("a", {OLD: "ggg"}, change=on("5.10", "520.61", 64 << 30))
    new = runs.write("b", {OLD: "ggg"}, machine="other", change=on("6.18", "550.54", 32 << 30))
    note = compare_runs([old, new]).notes[0]
    assert note.endswith("differ in: GPU driver 520.61 / 550.54; host kernel 5.10 / 6.18; memory 64 GiB / 32 GiB")
    (code, shown) = called(str(old), str(new))
    assert (code, "host kernel 5.10 / 6.18" in " ".join(shown.split())) == (0, True)
    same = runs.write("c", {OLD: "ggg"}, change=on("5.10", "520.61", 64 << 30))
    assert not [text for text in compare_runs([old, same]).notes if "differ in" in text]


def test_the_memory_limit_that_every_launch_of_a_host_has_is_no_setting(runs: Runs) -> None:
    """It follows from the host's memory, and made every comparison of two hosts impossible."""

    def on(default_bytes: int, limit_bytes: int) -> Callable[[Trial], Trial]:
        return seen({"cgroup": {"version": 2, "limit_bytes": limit_bytes}}, memory_limit_bytes=default_bytes)

    small = runs.write("a", {OLD: "ggg"}, change=on((57 << 30) + 9, 57 << 30))
    large = runs.write("b", {OLD: "ggg"}, machine="other", change=on(115 << 30, 115 << 30))
    asked = runs.write("c", {OLD: "ggg"}, machine="other", change=on(115 << 30, 4 << 30))
    assert not [text for text in compare_runs([small, large]).notes if "memory limit" in text]
    with pytest.raises(UsageError, match="memory limit 4294967296 and 2147483648"):
        compare_runs([asked, runs.write("d", {OLD: "ggg"}, change=on(9 << 30, 2 << 30))])


def test_one_lane_and_the_same_run_twice_have_nothing_beside_them(runs: Runs) -> None:
    path = runs.write("a", {OLD: "ggg"})
    with pytest.raises(UsageError, match="one host or card only"):
        compare_runs([path])
    with pytest.raises(UsageError, match="given twice"):
        compare_runs([path, path])


def test_the_first_launches_of_try_are_no_run_to_compare(runs: Runs) -> None:
    """It was told that the timeout and the agent differ."""
    paths = [runs.write(name, {OLD: "ggg"}) for name in ("a", "b")]
    plan = json.loads((paths[0] / "plan.json").read_text())
    (paths[0] / "plan.json").write_text(json.dumps({**plan, "rehearsal": True}))
    with pytest.raises(UsageError, match="only the first launches of `harness try`"):
        compare_runs(paths)


@pytest.mark.parametrize(("end", "is_told"), [("completed", False), ("hang", True)])
def test_a_time_limit_that_no_launch_reached_forbids_nothing(runs: Runs, end: End, *, is_told: bool) -> None:
    """`harness try` fits it to the machine: its runs on a slow and a quick host were never comparable."""
    paths = [
        runs.write(name, {lane: "ggg"}, of=OLD_TAGS, change=lambda one: replace(one, end=end))
        for name, lane in (("a", OLD), ("b", NEW))
    ]
    plan = json.loads((paths[1] / "plan.json").read_text())
    plan["scenarios"] = [{**each, "timeout": 130.0} for each in plan["scenarios"]]
    (paths[1] / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(UsageError, match="timeout 1200 s and 130 s") if is_told else nullcontext():
        compare_runs(paths)


# ---------------------------------------------------------------- what people and programs see


def called(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["compare", *arguments], env={"COLUMNS": "120"})
    return done.exit_code, done.output


@pytest.mark.parametrize(("factor", "told"), [(1.0, "no difference shown"), (1.5, "slower")])
def test_the_time_of_whole_runs_is_shown_beside(runs: Runs, factor: float, told: str) -> None:
    """Of a program without steps, old host and new host had only their peak memory in the table."""

    def whole(one: Trial, longer: float) -> Trial:
        assert one.trace is not None
        columns = {"rss_kib": one.trace.columns["rss_kib"]}
        run_s = longer * (8.0 + 0.01 * (one.number % 3))
        return replace(one, trace=replace(one.trace, columns=columns), facts=replace(one.facts, run_s=run_s))

    paths = [
        str(runs.write(name, {lane: "gg"}, of=OLD_TAGS, change=lambda one, by=by: whole(one, by)))
        for name, lane, by in (("a", OLD, 1.0), ("bb", NEW, factor))
    ]
    _, output = called(*paths)
    times = [line for line in output.splitlines() if line.strip().startswith("run time")]
    assert len(times) == 2, output
    assert all("8.01 s" in line and told in line for line in times), output


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_on_a_terminal(runs: Runs, columns: int) -> None:
    """A version or a param that is split cannot be searched for, nor pasted into `harness repro`."""
    paths = [str(runs.write(name, {lane: "gb"}, of=OLD_TAGS)) for name, lane in (("a", OLD), ("b", NEW))]
    done = CliRunner().invoke(cli, ["compare", *paths], env={"COLUMNS": str(columns)})
    assert done.exit_code == 1
    lines = [line.rstrip() for line in done.output.splitlines()]
    assert lines[0].startswith("signal_ops leaks 24 KiB/step since 22.12, on both cards")
    assert "ngc 22.12, signal_ops" in lines
    assert "verdict leak 24.1 leak 24.1 both bad" in " ".join(done.output.split())
    assert "not measured side by side" in " ".join(done.output.split())
    assert any(line.split() == ["old/RTX", "3090", "new/RTX", "4090", "ratio", "(95", "%)"] for line in lines)
    assert any(line.startswith("  memory growth  24.1 KiB/step  24.1 KiB/step  0 (0 to 0) %") for line in lines)
    assert max(map(len, lines)) <= columns


def test_long_names_of_runs_are_whole_on_a_narrow_terminal(runs: Runs) -> None:
    """If they are split, they cannot be pasted into another command."""
    names = ["20250301T120000Z-1a2b", "20250401T120000Z-3c4d"]
    paths = [str(runs.write(name, {OLD: "gb"}, of=OLD_TAGS)) for name in names]
    shown = CliRunner().invoke(cli, ["compare", *paths], env={"COLUMNS": "80"}).output
    lines = [line.rstrip() for line in shown.splitlines()]
    assert {f"A: old/RTX 3090 ({names[0]})", f"B: old/RTX 3090 ({names[1]})"} < set(lines)
    assert any(line.split() == ["A", "B", "ratio", "(95", "%)"] for line in lines)
    assert max(map(len, lines)) <= 80


def test_the_same_for_programs(runs: Runs) -> None:
    first, second = runs.write("a", {OLD: "gb"}, of=OLD_TAGS), runs.write("b", {NEW: "ib"}, of=OLD_TAGS)
    code, shown = called("--json", str(first), str(second))
    told: dict[str, Any] = json.loads(shown)
    assert (code, told["schema"], told["exit_code"]) == (1, 1, 1)
    assert told["attribution"][0]["cause"] == "image"
    (cell,) = told["cells"]
    assert cell["columns"] == ["old/RTX 3090", "new/RTX 4090"]
    assert {"outcome", "memory", "step_time", "peak_memory"} <= {one["metric"] for one in cell["metrics"]}
    assert comparison_json(compare_runs([first, second])) == told


# ---------------------------------------------------------------- statistics, and the order of images


def test_the_interval_of_a_ratio_is_that_of_welch() -> None:
    """Computed by hand: logs 0, .1, .2 and .5, .6, .7: difference .5, error √(2·.01/3), 4 degrees of freedom."""
    one, other = np.exp([0.0, 0.1, 0.2]), np.exp([0.5, 0.6, 0.7])
    interval = ratio_interval(list(one), list(other))
    assert interval is not None
    margin = 2.7764451 * (0.02 / 3) ** 0.5
    assert interval == pytest.approx((np.exp(0.5 - margin), np.exp(0.5 + margin)), rel=1e-6)
    assert ratio_interval([1.0], [1.0, 2.0]) is None


def test_what_cannot_be_told_is_not_said() -> None:
    side = ComparedCell(verdict=build.unknown("suspect", "?"), trials=())
    found = compare_cell(ComparedCell(verdict=build.flat(), trials=()), side, steps=Steps(), limits=Limits())
    assert {one.standing for one in found} == {"unknown"}


@pytest.mark.parametrize(("seconds", "shown"), [(3.0, "setup time 1.00 s 3.00 s 3× (2.9"), (1.4, "")])
def test_a_signal_that_differs_has_a_row_from_its_limit_on(runs: Runs, seconds: float, shown: str) -> None:
    """The limit of a setup is 50 % and 0.5 s; a row for each of twenty equal signals would hide it."""

    def starting(mean_s: float) -> Callable[[Trial], Trial]:
        return lambda one: changed(one, facts=replace(one.facts, setup_s=mean_s * (1 + 0.001 * one.number)), cold=False)

    first = runs.write("a", {OLD: "gg"}, of=OLD_TAGS, machine="m", change=starting(1.0))
    second = runs.write("b", {OLD: "gg"}, of=OLD_TAGS, machine="m", change=starting(seconds))
    code, told = called(str(first), str(second))
    text = " ".join(told.split())
    assert code == (1 if shown else 0)
    assert shown in text
    assert ("setup time" in text) == bool(shown)
    assert "throughput" not in text


def test_growth_and_numbers_that_are_bad_on_one_side_are_told() -> None:
    """The verdict of such a cell is flat: two runs were both good, and the command exited with 0."""

    def side(**states: SignalState) -> ComparedCell:
        signals = {name.replace("__", "."): SignalVerdict(seen=seen, value=2.0) for name, seen in states.items()}
        return ComparedCell(verdict=replace(build.flat(), signals=signals), trials=())

    one, other = side(open_files="good", metrics__loss="good"), side(open_files="bad", metrics__loss="bad")
    found = {each.metric: each for each in compare_cell(one, other, steps=Steps(), limits=Limits())}
    assert {found[name].standing for name in ("outcome", "open_files", "metrics.loss")} == {"worse"}
    assert standing_text(found["open_files"], "old", "new") == "only new leaves files open"
    assert standing_text(found["metrics.loss"], "old", "new") == "only new is bad"


def test_a_side_that_only_a_signal_makes_bad_is_not_shown_as_flat() -> None:
    """Both sides read `flat`, and beside them `only B is bad`."""
    slow = replace(build.flat(), signals={"step_time": SignalVerdict(seen="bad", value=2.0)})
    assert verdict_text(slow) == "step time bad"
    assert verdict_text(build.flat()).startswith("flat")


@pytest.mark.parametrize(
    ("verdict", "shown", "together"),
    [
        (build.flat(), "flat ≤0.017", "both good"),
        (replace(build.flat(), provisional=True), "flat ≤0.017 so far", "neither is bad"),
        (build.told(build.flat(), "step_time", seen="blind"), "flat ≤0.017", "neither is bad"),
    ],
)
def test_a_side_that_is_not_decided_is_not_called_good(verdict: CellVerdict, shown: str, together: str) -> None:
    """A cell of an interrupted run, with one launch of three, read `flat` and `both good`."""
    column = Column(label="a", number=0, run="a", lane=build.HERE, machine="m", started="")
    pair = Pair(
        series="s", image="1", variant=build.POP, one=column, other=column, verdicts=(verdict, build.flat()),
        measured=(Measured(metric="outcome", one=None, other=None, standing="same"),),
    )  # fmt: skip
    file = StringIO()
    render(Comparison(columns=(column,), pairs=(pair,), together=None, notes=(), exit_code=0), Console(file=file))
    assert " ".join(["verdict", shown, "flat ≤0.017", together]) in " ".join(file.getvalue().split())


def test_a_throughput_that_falls_is_told_as_it_is() -> None:
    def side(items: float) -> ComparedCell:
        columns = {"step_s": np.full(2000, 0.001), "items": np.full(2000, items)}
        trace = Trace(step=np.arange(1.0, 2001.0), columns=columns)
        return ComparedCell(
            verdict=build.flat(), trials=[made_trial(trace=trace, number=n, round=n) for n in (1, 2, 3)]
        )

    found = compare_cell(side(10), side(4), steps=Steps(budget=2000), limits=Limits())
    (items,) = [each for each in found if each.metric == "throughput"]
    assert (items.one, items.other, items.ratio) == pytest.approx((10_000, 4_000, 0.4))
    assert (items.standing, standing_text(items, "old", "new")) == ("less", "lower")


def test_rates_are_those_of_leaks_by_the_scenario_s_own_limit() -> None:
    """By the default limit there is no leak, and the other growth of resident memory would be compared."""
    step, limits = np.arange(1.0, 2001.0), Limits(signals={"memory": 0.05})

    def leaking(rate: float) -> ComparedCell:
        columns = {"rss_kib": np.full(2000, 1000.0), "gpu_pool_kib": 1000 + rate * step}
        trace = Trace(step=step, columns=columns)
        return ComparedCell(verdict=build.leak(rate), trials=[made_trial(trace=trace, number=n) for n in (1, 2)])

    memory = compare_cell(leaking(0.1), leaking(0.2), steps=Steps(budget=2000), limits=limits)[1]
    assert (memory.standing, memory.ratio) == ("more", pytest.approx(2.0))


@settings(max_examples=many(24, 600))
@given(kept=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_two_parts_of_one_history_keep_each_their_order(kept: Sequence[tuple[bool, bool]]) -> None:
    versions = [f"1.{number}" for number in range(len(kept))]
    one = [version for version, (here, _) in zip(versions, kept, strict=True) if here]
    other = [version for version, (_, there) in zip(versions, kept, strict=True) if there]
    order = merged_versions(one, other)
    assert set(order) == {*one, *other}
    assert [version for version in order if version in one] == one
    assert [version for version in order if version in other] == other
    if not set(one) & set(other):
        assert order == sorted(order, key=versions.index)


def test_lanes_of_one_name_on_two_machines_are_told_apart(runs: Runs) -> None:
    here: Lane = lane("here", None)
    first = runs.write("a", {here: "gb"}, of=OLD_TAGS, machine="m1")
    second = runs.write("b", {here: "gb"}, of=OLD_TAGS, machine="m2")
    found = compare_runs([first, second])
    assert found.together is not None
    assert sentence(found.together) == (
        "signal_ops leaks 24 KiB/step since 22.12, on both hosts; not the host's fault; layer: native heap."
    )
