"""Rows of a pool whose machines are lost: no row is lost, counted twice or forgotten, and none
takes all machines down.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import EngineUnreachable
from harness.flows.context import RunContext
from harness.flows.hosts import OpenHost
from harness.flows.pool import PoolRun
from harness.model import CellRun, Host, Image, Mount, Prepared, Proposal, RowRun, Trace, Trial, Trials
from harness.model.watching import Say
from harness.report.terminal.progress import plain_progress
from harness.run.hosts.cell_launcher import CellLauncher
from harness.run.images.prefetch import HostImages
from harness.schedule import RowQueue
from tests.players.plans import WHERE, Opened
from tests.players.searching import a_row, queue
from tests.players.trials import row_run

LOST = "the engine does not answer any more"


@dataclass
class World:
    """Machines, by name, that are lost after this many turns; each comes back `back` times."""

    turns: dict[str, int]
    back: dict[str, int] = field(default_factory=dict)
    homes: dict[tuple[str, str, str], str] = field(default_factory=dict)
    began: list[tuple[str, str]] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    restarted: list[str] = field(default_factory=list)
    broken: list[Trial] = field(default_factory=list)
    whole: Trace = field(default_factory=lambda: Trace(step=np.arange(1.0, 9.0), columns={}))
    """The trace in the file of each trial."""
    notes: io.StringIO = field(default_factory=io.StringIO)
    lacks: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    """The mounted paths that a machine lacks."""

    def run(self, rows: Sequence[RowRun]) -> list[OpenHost]:
        pool = tuple(f"ssh://{name}" for name in self.turns)
        host = Host(name="farm", engine=", ".join(pool), gpus="none", where=WHERE, pool=pool)
        machines = [OpenHost(host=one, part_of=host, engine=self._opened(one)) for one in host.machines]
        with plain_progress(self.notes) as progress:
            wait_s = 0.05 if self.back else 0.0
            context = RunContext(
                environ={}, progress=progress, stopped=threading.Event(), open_engine=self._open, pool_wait_s=wait_s
            )
            PoolRun(machines=machines, run=self.plan_run(context), homes=self.homes).launch(rows)
        return machines

    def plan_run(self, context: Any = None) -> Any:
        """Return the run of a plan, as far as a pool uses it."""
        return SimpleNamespace(
            context=context, queue=lambda host, rows, **of_pool: queue(list(rows), **of_pool), use=self._use,
            choose_noise=self._begun, again=self._again,
            journal=SimpleNamespace(
                write_trial=lambda trial, cell: self.broken.append(trial),
                read_back=lambda trial: replace(trial, trace=self.whole),
            ),
        )  # fmt: skip

    def _opened(self, host: Host) -> Any:
        lacks = self.lacks.get(host.machine, ())

        class Closed(Opened):
            def missing(self, paths: Sequence[Path]) -> tuple[Path, ...]:
                return tuple(path for path in paths if path in lacks)

            def close(self) -> None: ...

            def cpu(self, images: object, say: object) -> str:
                return "x"

        return Closed(machine=host.machine, cpu="x")

    def _open(self, host: Host, **_: Any) -> Any:
        if self.back.get(host.machine, 0) < 1:
            raise EngineUnreachable(LOST, place=WHERE)
        self.back[host.machine] -= 1
        self.turns[host.machine] = 10_000
        return self._opened(host)

    def _begun(self, row: RowRun) -> None:
        cell = row.cells[0].cell
        self.began.append((str(cell.variant), cell.lane.host.machine))

    def _again(self, old: RowRun, why: str) -> RowRun:
        self.restarted.append(why)
        runs = tuple(CellRun(cell=replace(run.cell, lane=replace(run.cell.lane))) for run in old.cells)
        return row_run(runs, old.propose)

    def _use(self, each: OpenHost, shared: RowQueue, over: Callable[[], bool]) -> None:
        name = each.host.machine
        while (turn := shared.take(name)) is not None:
            self.turns[name] -= 1
            if self.turns[name] < 0:
                raise EngineUnreachable(LOST, place=WHERE)
            row, proposal = turn
            for run in proposal.runs if proposal else ():
                run.trials.append(
                    Trial(cell_id="c", number=1, key="k", end="completed", fingerprint={"machine": name},
                          round=proposal.round if proposal else 0)
                )  # fmt: skip
            if proposal is not None and not proposal.runs:
                self.done.add(id(row))
                row.finished = True
                shared.close(row)
            else:
                shared.put_back(row)


def some_rows(count: int, rounds: int = 2) -> list[RowRun]:
    return [a_row(f"row{number}", rounds) for number in range(count)]


@settings(max_examples=20, deadline=None)  # each starts threads
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(0, 8))
def test_every_row_ends_on_one_machine_or_says_why_not(turns: list[int], count: int) -> None:
    world, rows = World(turns={f"gpu{n}": each for n, each in enumerate(turns)}), some_rows(count)
    machines = world.run(rows)
    ended = {name for name, _ in world.began} if all(each.usable for each in machines) else set()
    for each in rows:
        of = {trial.machine for trial in each.cells[0].trials}
        assert len(of) <= 1
        if id(each) in world.done:
            assert len(each.cells[0].trials) == 2
        elif str(each.cells[0].cell.variant) in ended:
            assert each.cells[0].problem
    if any(each.usable for each in machines):
        assert len(world.done) >= count - len(machines)
    assert world.notes.getvalue().count("was lost") >= sum(not each.usable for each in machines)


def test_a_row_that_was_on_a_lost_machine_starts_again_on_another() -> None:
    world = World(turns={"gpu0": 3, "gpu1": 1000})
    first, second = some_rows(2, rounds=6)
    machines = world.run([first, second])
    assert [each.usable for each in machines] == [False, True]
    assert machines[0].problem == "gpu0 was lost: the engine does not answer any more"
    assert world.restarted == ["gpu0 was lost while it measured this row"]
    assert len(world.done) == 2


def test_a_row_that_takes_machines_down_is_given_up_after_two_retries() -> None:
    """It would take all machines of the pool, one after the other."""
    world = World(turns={f"gpu{number}": 2 for number in range(5)})
    (only,) = some_rows(1, rounds=6)
    last: list[RowRun] = [only]
    again = world._again

    def kept(old: RowRun, why: str) -> RowRun:
        last.append(again(old, why))
        return last[-1]

    world._again = kept  # type: ignore[method-assign]
    machines = world.run([only])
    assert sum(each.usable for each in machines) == 2
    assert last[-1].cells[0].problem.startswith("3 machines were lost one after the other while they measured this row")


def test_a_machine_that_comes_back_goes_on_with_its_row() -> None:
    world = World(turns={"gpu0": 3}, back={"gpu0": 1})
    (only,) = some_rows(1, rounds=6)
    machines = world.run([only])
    assert machines[0].usable
    assert world.restarted == []
    assert [trial.round for trial in only.cells[0].trials] == list(range(6))
    assert "gpu0 is back, and goes on with its row" in world.notes.getvalue()


def test_a_machine_without_the_data_that_another_one_has_takes_no_row() -> None:
    """Its rows were untested, for a path that `does not exist on this host`, which was the whole pool."""
    data, gone = Path("/srv/data"), Path("/srv/gone")
    world = World({"a": 99, "b": 99, "c": 99}, lacks={"a": (data, gone), "b": (gone,), "c": (gone,)})
    rows = some_rows(6)
    for run in (run for row in rows for run in row.cells):
        mounts = tuple(Mount(source=path, at=path.name) for path in (data, gone))
        scenario = replace(run.cell.variant.scenario, mounts=mounts)
        run.cell = replace(run.cell, variant=replace(run.cell.variant, scenario=scenario))
    left_out, *others = world.run(rows)
    assert all(row.finished for row in rows)
    assert {machine for _, machine in world.began} <= {"b", "c"}
    why = "a is left out of the pool: it differs in its data, because /srv/data does not exist there; make it match"
    assert str(left_out.problem).startswith(why)
    assert why in world.notes.getvalue()
    assert not any(each.problem for each in others), "no machine has the other path, and launches say it"


def test_rows_without_a_machine_say_what_became_of_each() -> None:
    world = World(turns={"gpu0": 0, "gpu1": 0})
    rows = some_rows(4)
    world.run(rows)
    waiting = [each for each in rows if not any(str(each.cells[0].cell.variant) == name for name, _ in world.began)]
    assert waiting
    assert all(
        "gpu0 was lost" in each.cells[0].problem and "gpu1 was lost" in each.cells[0].problem for each in waiting
    )


def test_a_row_goes_on_where_an_earlier_run_measured_it() -> None:
    rows = some_rows(6)
    homes = {("s", "here", f"row{number}"): f"gpu{number % 2}" for number in range(6)}
    world = World(turns={"gpu0": 1000, "gpu1": 1000}, homes=homes)
    world.run(rows)
    assert dict(world.began) == {f"row{n}": f"gpu{n % 2}" for n in range(6)}
    gone = World(turns={"gpu0": 1000}, homes=homes)
    gone.run(some_rows(6))
    assert len(gone.done) == 6


def test_launches_of_a_round_that_was_broken_off_are_not_compared() -> None:
    """Their times are from minutes before the rest of the round."""
    made = a_row("row", 2)
    run = made.cells[0]
    other = CellRun(cell=run.cell)
    both = row_run((run, other), lambda row: Proposal(kind="round", runs=row.cells))
    world = World(turns={"gpu0": 10})
    waiting = queue([both])
    for _ in range(2):
        turn = waiting.take("gpu0")
        assert turn is not None
        if turn[1] is None:
            waiting.put_back(both)
    thin = Trace(step=np.array([1.0]), columns={})
    run.trials.append(Trial(cell_id="c", number=1, key="k", end="crash", round=0, trace=thin))
    PoolRun(machines=(), run=world.plan_run(), homes={}).break_rounds("gpu0", waiting)
    assert [(trial.end, trial.conditions.disturbed) for trial in run.trials] == [
        ("crash", "the machine was lost in the middle of its round")
    ]
    assert world.broken == run.trials
    assert run.trials[0].trace is world.whole, "the file keeps all rows, although the trace in memory was thinned"


def test_a_machine_s_trials_count_for_the_pool_and_have_a_line_of_their_own() -> None:
    run = a_row("x", 1).cells[0]
    run.cell = replace(
        run.cell, lane=replace(run.cell.lane, host=replace(run.cell.lane.host, name="farm", machine="g1"))
    )

    def prepare(image: Image, say: Say) -> Prepared:
        say("pulling")
        return Prepared(image=image, reference="id", digest="sha256:1")

    engine: Any = SimpleNamespace(look=lambda image, say: None, prepare=prepare)
    unasked: Any = None
    out = io.StringIO()
    with plain_progress(out) as listener:
        listener.plan(most={"farm": 2}, exact=True, about={})
        images = HostImages(engine=engine, open_another=unasked, progress=listener, stopped=bool, machine="g1")
        images.get(run.cell)
        CellLauncher(
            engine=engine, lease=unasked, images=images, run_id="run", trials=Trials(),
            journal=unasked, progress=listener, stopped=bool,
        )._report_end(run, ("flat", False), reused=False)  # fmt: skip
    cell = run.cell
    assert out.getvalue().splitlines() == [
        f"image farm, g1: {cell.image.series} {cell.image.version}: pulling",
        f"cell {cell}: flat (g1)",
    ]
