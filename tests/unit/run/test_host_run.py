"""What a host's run prepares before its first launch, and what it launches while images are being pulled."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest

from harness.judge.api import Length
from harness.model import (
    TIMES,
    Cell,
    CellRun,
    Limits,
    Prepared,
    ProgressListener,
    Proposal,
    Pull,
    RowRun,
    RowStanding,
    Steps,
    Trace,
    Trial,
    Trials,
)
from harness.model.matrix import Gpu
from harness.run.engine import Engine
from harness.run.hosts import cell_launcher
from harness.run.hosts.cell_launcher import CellLauncher, cannot_run
from harness.run.hosts.host_run import HostRun
from harness.run.images.prefetch import HostImages
from harness.run.trial.conversation import Sliced
from harness.schedule import RowQueue
from harness.store import RunDirectory
from tests.players.plans import a_cell, host
from tests.players.trials import row_run

NEW = Gpu(index=0, uuid="GPU-1", name="NVIDIA GeForce RTX 4090", compute_capability="8.9", driver="535.54")


def nothing(row: RowRun) -> Proposal:
    """Propose no launches."""
    return Proposal(kind="done")


def queue_of(rows: Sequence[RowRun]) -> RowQueue:
    """Let all rows be equally good for the order of launches."""
    queue = RowQueue(standing=lambda row: RowStanding(), recall=lambda row: None)
    for row in rows:
        queue.add(row)
    return queue


def test_an_image_that_cannot_run_there_is_not_pulled() -> None:
    """Ten gigabytes of an image that the card is known to refuse would be pulled before images that it can run."""
    cells = [
        a_cell(tag, on=host("new", gpus="all"), gpu="all", gpus=(NEW,),
               source=Pull(reference=f"nvcr.io/nvidia/tensorflow:{tag}"))
        for tag in ("20.12-tf1-py3", "22.12-tf1-py3")
    ]  # fmt: skip
    runs = tuple(CellRun(cell=cell, incompatible=cannot_run(cell, None) or "") for cell in cells)
    assert [bool(run.incompatible) for run in runs] == [True, False]
    images: Any = create_autospec(HostImages, instance=True)
    launcher = CellLauncher(
        engine=create_autospec(Engine, instance=True), lease=lambda: None,
        images=images, run_id="run", trials=Trials(),
        journal=create_autospec(RunDirectory, instance=True), progress=create_autospec(ProgressListener, instance=True),
        stopped=lambda: False,
    )  # fmt: skip
    HostRun(worker="new", launcher=launcher, rng=random.Random(1), finished=lambda row: None).look_ahead(
        queue_of([row_run(runs, nothing)])
    )
    ((ahead,), _) = images.pull_ahead.call_args
    assert [cell.image.version for cell in ahead] == ["22.12-tf1-py3"]


@dataclass(frozen=True, kw_only=True)
class Timed(CellLauncher):
    """An engine whose launches are quiet traces with steps of a millisecond, or of what `step_s`
    gives for a version.
    """

    step_s: Mapping[str, float] = field(default_factory=dict)

    def _launch(
        self, run: CellRun, prepared: Prepared, proposal: Proposal, length: Length, *, number: int, slices: int
    ) -> Sliced[Trial]:
        yield from ()
        step = np.arange(1.0, 1001.0)
        columns = {
            "rss_kib": np.full(len(step), 50_000.0),
            "step_s": np.full(len(step), self.step_s.get(run.cell.image.version, 1e-3)),
        }
        return Trial(
            cell_id=run.cell.id, number=number, key="k", end="completed", run="run", round=proposal.round,
            last_step=1000, trace=Trace(step=step, columns=columns),
        )  # fmt: skip


def launched(order: list[int], *, failing: frozenset[int] = frozenset()) -> list[str]:
    """Return the versions launched in a round whose images arrive in this order, each only once it is waited for."""
    return [version for _, version in launches(order, trials=Trials(least=1, most=1), failing=failing)]


def launches(
    order: list[int],
    *,
    trials: Trials,
    variants: tuple[str, ...] = ("x",),
    failing: frozenset[int] = frozenset(),
    step_s: Mapping[str, float] | None = None,
    limits: Limits | None = None,
    kept: list[Trial] | None = None,
) -> list[tuple[str, str]]:
    """Return the variant and version of each launch, for a row per variant; the images arrive as in `launched`."""
    rows = []
    fields = {"on": host("new"), "steps": Steps(first=500, budget=1000), "limits": limits or Limits()}
    for name in variants:
        runs = tuple(CellRun(cell=a_cell(str(number), name=name, **fields)) for number in range(len(order)))
        rows.append(row_run(runs, asked=trials, measures_noise=name == variants[0]))
    come: set[str] = set()

    def get(cell: Cell) -> Prepared | str:
        come.add(cell.image.version)
        if int(cell.image.version) in failing:
            return "gone"
        return Prepared(image=cell.image, reference="id", digest=cell.image.version)

    images: Any = create_autospec(HostImages, instance=True)
    images.get.side_effect = get
    images.is_coming.side_effect = lambda cell: cell.image.version not in come
    images.turn.side_effect = lambda cell: order.index(int(cell.image.version))
    images.new = set(map(str, order))  # by their digests
    images.pulled_since.side_effect = lambda begun_s: len(come) < len(order)
    images.wait_for_pulls.side_effect = lambda: come.update(map(str, order))
    progress: Any = create_autospec(ProgressListener, instance=True)
    engine: Any = create_autospec(Engine, instance=True)
    engine.facts = {}
    launcher = Timed(
        engine=engine, lease=lambda: None, images=images, run_id="run", trials=trials,
        journal=create_autospec(RunDirectory, instance=True), progress=progress,
        stopped=lambda: False, reuse=False, step_s=step_s or {},
    )  # fmt: skip
    HostRun(worker="new", launcher=launcher, rng=random.Random(1), finished=lambda row: None).run(queue_of(rows))
    if kept is not None:
        kept += [call.args[0] for call in launcher.journal.write_trial.call_args_list]  # type: ignore[attr-defined]
    cells = [call.kwargs["cell"] for call in progress.trial_started.call_args_list]
    return [(cell.split(": ")[1], cell.split(" ")[1] + ("t" if "(A/A replicate)" in cell else "")) for cell in cells]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([0, 1, 2], ["0", "0t", "1", "2"]),
        ([1, 0, 2], ["1", "0", "0t", "2"]),  # the oldest version is launched twice, whichever image arrives first
        ([1, 2, 0], ["1", "2", "0", "0t"]),
    ],
)
def test_the_time_of_a_pull_is_used_for_the_launch_that_measures_the_noise(
    order: list[int], expected: list[str]
) -> None:
    """Left for the end, it would have to be waited for, after hours in which the lane only waited."""
    assert launched(order) == expected


def test_an_image_that_cannot_be_had_holds_up_no_other() -> None:
    """The oldest image is gone from its registry: the next one is launched twice."""
    assert launched([1, 0, 2], failing=frozenset({0})) == ["1", "1t", "2"]


ASKED = Trials(least=3, most=8)


def test_only_first_launches_run_during_pulls_and_their_times_are_made_up_for() -> None:
    kept: list[Trial] = []
    order = launches([0, 1, 2, 3, 4, 5], trials=ASKED, kept=kept)
    assert [order.count(("x", version)) for version in "012345"] == [4] * 6
    assert [version for _, version in order[:7]] == ["0", "0t", "1", "2", "3", "4", "5"]
    pulled = [trial for trial in kept if trial.conditions.pulled]
    assert {trial.number for trial in pulled} == {1}
    assert len(pulled) == 6  # the last image is the only one that is launched after the last pull


def test_a_launch_that_failed_by_the_hosts_fault_is_made_up_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later launches counted for the next round: one round lacked the version, and all versions were launched
    repeatedly to complete three rounds.
    """

    def review(cell: Cell, trial: Trial) -> tuple[Trial, str]:
        failed = cell.image.version == "1" and trial.number == 2
        return (replace(trial, end="infrastructure") if failed else trial), ""

    monkeypatch.setattr(cell_launcher, "review", review)
    order = launches([0, 1, 2, 3, 4, 5], trials=ASKED)
    assert [order.count(("x", version)) for version in "012345"] == [4, 5, 4, 4, 4, 4]


def test_the_only_version_that_can_be_had_is_launched_no_oftener() -> None:
    order = launches([2, 0, 1, 3, 4, 5], trials=ASKED, failing=frozenset({0, 1, 3, 4, 5}))
    assert order.count(("x", "2")) == 3


@pytest.mark.parametrize("fails", ["review", "describe_trial"])
def test_an_image_that_finds_a_fault_of_the_harness_does_not_end_the_sweep(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One launch of one image ended the whole sweep with a traceback that did not name the image."""
    usual = getattr(cell_launcher, fails)

    def broken(cell: Cell, trial: Trial) -> Any:
        if cell.image.version == "1":
            raise AttributeError("'str' object\n has no attribute 'get'")
        return usual(cell, trial)

    monkeypatch.setattr(cell_launcher, fails, broken)
    trials: list[Trial] = []
    order = launches([0, 1, 2], trials=Trials(least=1, most=1), kept=trials)
    assert [order.count(("x", version)) for version in "012"] == [1, 3, 1]
    messages = {trial.message for trial in trials if trial.end == "infrastructure"}
    assert len(messages) == 1
    (message,) = messages
    assert message.startswith("a bug in the harness ended this launch: AttributeError at test_host_run.py:")
    assert "\n" not in message


def test_no_launch_runs_during_pulls_where_all_are_needed_undisturbed() -> None:
    kept: list[Trial] = []
    launches([0, 1, 2], trials=Trials(least=2, most=2), variants=("x", "y"), kept=kept)
    assert not any(trial.conditions.pulled for trial in kept)


def test_the_first_launch_of_each_variant_of_a_new_image_is_not_compared() -> None:
    """It reads files of the image that another variant may not have read, so that its steps begin slowly."""
    kept: list[Trial] = []
    launches([0, 1, 2], trials=Trials(least=2, most=2), variants=("x", "y"), kept=kept)
    assert all(trial.conditions.cold is (trial.number == 1) for trial in kept)


def test_nothing_waits_for_the_last_pull_where_no_times_are_compared() -> None:
    limits = Limits(signals=dict.fromkeys(TIMES))
    order = launches([0, 1, 2], trials=Trials(least=3, most=3), limits=limits)
    assert order[:3] == [("x", "0"), ("x", "1"), ("x", "2")]
    assert len(order) == 9


def test_an_image_that_a_launch_showed_to_be_incompatible_is_not_launched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def review(cell: Cell, trial: Trial) -> tuple[Trial, str]:
        if str(cell.variant) != "y" or cell.image.version != "0":
            return trial, ""
        return replace(trial, end="infrastructure"), "has no code for this card"

    monkeypatch.setattr(cell_launcher, "review", review)
    found = launches([0, 1], trials=Trials(least=1, most=3), variants=("x", "y"))
    assert found.count(("y", "0")) == 1
