"""Rows that several workers share: each row is measured on one machine, and no row is forgotten."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from harness.model import CellRun, Proposal, RowRun, RowStanding, Trial
from harness.schedule import RowQueue
from tests.players.searching import a_row, queue, rounds
from tests.players.trials import row_run


@dataclass
class Worker:
    name: str
    queue: RowQueue
    launch_s: float = 1.0
    began: list[str] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)

    def turn(self) -> bool:
        turn = self.queue.take(self.name)
        if turn is None:
            return False
        row, proposal = turn
        name = str(row.cells[0].cell.variant)
        if proposal is None:
            self.began.append(name)
        for run in proposal.runs if proposal else ():
            run.trials.append(
                Trial(cell_id="c", number=len(run.trials) + 1, key="k", end="completed", duration_s=self.launch_s)
            )
            self.launched.append(name)
        if proposal is not None and not proposal.runs:
            self.queue.close(row)
        else:
            self.queue.put_back(row)
        return True


@given(st.lists(st.integers(0, 4), max_size=8), st.integers(1, 4), st.randoms(use_true_random=False))
def test_every_launch_is_made_once_and_a_row_stays_with_who_began_it(
    counts: list[int], number: int, rng: random.Random
) -> None:
    """Launches of one row on two machines would be compared although the machines differ."""
    rows = [a_row(f"row{place}", count) for place, count in enumerate(counts)]
    shared = queue(rows)
    workers = [Worker(str(name), shared) for name in range(number)]
    while any(worker.turn() for worker in rng.sample(workers, len(workers))):
        pass
    assert [len(each.cells[0].trials) for each in rows] == counts
    for worker in workers:
        assert set(worker.launched) <= set(worker.began)
    assert sorted(name for worker in workers for name in worker.began) == sorted(f"row{k}" for k in range(len(counts)))


def test_the_first_round_of_every_row_comes_before_the_second_of_any() -> None:
    worker = Worker("one", queue([a_row("a", 3), a_row("b", 3), a_row("c", 3)]))
    while worker.turn():
        pass
    assert worker.launched == list("abcaabbcc")  # and then the rows are finished one after the other


def test_what_looks_bad_goes_on_before_the_others() -> None:
    shared = RowQueue(
        standing=lambda row: RowStanding(suspect=str(row.cells[0].cell.variant) == "b"), recall=lambda row: None
    )
    for name in "abc":
        shared.add(a_row(name, 3))
    worker = Worker("one", shared)
    while worker.turn():
        pass
    assert worker.launched == list("abcbbaacc")


def test_rows_of_a_later_group_wait() -> None:
    """If images have to make room for each other, alternating rounds of two series would pull all images repeatedly."""
    shared = RowQueue(standing=lambda row: RowStanding(), recall=lambda row: None)
    shared.add(a_row("a", 2), group=0)
    shared.add(a_row("b", 2), group=1)
    worker = Worker("one", shared)
    while worker.turn():
        pass
    assert worker.launched == list("aabb")


def test_a_first_round_gives_way_once_its_first_launch_was_far_costlier_than_those_of_others() -> None:
    """A row of six launches of 20 s was finished while eleven rows of 1 s waited for their first launch."""
    dear = one_round("dear", 6)
    rows = queue([dear])
    preparing = rows.take("one")
    assert preparing is not None
    rows.put_back(dear)
    begun = rows.take("one")
    assert begun is not None
    assert begun[1] is not None
    assert not rows.gives_way(dear), "nothing of it was launched yet"
    begun[1].runs[0].trials.append(Trial(cell_id="c", number=1, key="k", end="completed", duration_s=20.0))
    assert not rows.gives_way(dear), "there is nothing else to do"
    cheap = a_row("cheap", 1)
    rows.add(cheap)
    assert rows.gives_way(dear)
    rows.put_back(dear)
    following = rows.take("one")
    assert following is not None
    assert following[0] is cheap


def one_round(name: str, versions: int) -> RowRun:
    cells = tuple(a_row(name, 1).cells[0] for _ in range(versions))
    return row_run(cells, one_launch_each)


def one_launch_each(row: RowRun) -> Proposal:
    left = tuple(run for run in row.cells if not run.trials)
    return Proposal(kind="round" if left else "done", runs=left)


def test_a_machine_of_a_pool_begins_the_rows_in_their_order() -> None:
    """The longest rows come first: a long row that begins last would keep one machine busy while
    the others are idle.
    """
    rows = queue([a_row(name, 2) for name in ("long", "middle", "short")])
    rows.most = 1
    worker = Worker("gpu1", rows)
    while worker.turn():
        pass
    assert worker.began == ["long", "middle", "short"]


# ---------------------------------------------------------------- launches side by side


def wide(name: str, count: int, versions: int) -> RowRun:
    (run,) = a_row(name, 0).cells
    images = [replace(run.cell.image, version=str(version)) for version in range(versions)]
    runs = tuple(CellRun(cell=replace(run.cell, image=image)) for image in images)
    return row_run(runs, rounds(count))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans()), max_size=4),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_hands_of_one_worker_make_every_launch_once_and_share_no_version(
    asked: list[tuple[int, int, bool]], hands: int, seed: int
) -> None:
    """Two launches of one version at a time would be one trial with two results; a lost launch would leave a row
    unfinished.
    """
    rows = [wide(f"row{place}", count, versions) for place, (count, versions, _) in enumerate(asked)]
    beside = {id(each): splits for each, (_, _, splits) in zip(rows, asked, strict=True)}
    shared = RowQueue(standing=lambda row: RowStanding(), recall=lambda row: None, splits=lambda row: beside[id(row)])
    for each in rows:
        shared.add(each)
    rng, at_work = random.Random(seed), set[int]()
    lock = threading.Lock()

    def work() -> None:
        try:
            while (turn := shared.take("one")) is not None:
                row, proposal = turn
                assert not shared.is_split(row) or (proposal is not None and len(proposal.runs) == 1)
                assert shared.is_split(row) == (beside[id(row)] and proposal is not None and bool(proposal.runs))
                for run in proposal.runs if proposal else ():
                    with lock:
                        assert id(run) not in at_work
                        at_work.add(id(run))
                    threading.Event().wait(rng.random() / 5000)
                    run.trials.append(Trial(cell_id="c", number=len(run.trials) + 1, key="k", end="completed"))
                    with lock:
                        at_work.remove(id(run))
                if proposal is not None and not proposal.runs:
                    shared.close(row)
                else:
                    shared.put_back(row)
        except BaseException as error:
            failures.append(error)
            shared.abandon("one")
            raise

    failures: list[BaseException] = []
    threads = [threading.Thread(target=work) for _ in range(hands)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not failures
    assert [{len(run.trials) for run in each.cells} for each in rows] == [{count} for count, _, _ in asked]


def test_nobody_waits_for_a_hand_that_is_gone() -> None:
    """An error in one of the threads must end the sweep, not let it hang."""
    shared = RowQueue(standing=lambda row: RowStanding(), recall=lambda row: None, splits=lambda row: True)
    shared.add(wide("row", 1, 1))
    assert shared.take("one") is not None
    shared.abandon("one")
    assert shared.take("one") is None
