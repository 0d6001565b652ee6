"""Launches side by side: which launches may share a host, and what a failure alongside others is worth."""

from __future__ import annotations

import random
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import Interrupted
from harness.model import TIMES, Cell, CellRun, Conditions, End, Failure, Host, Limits, Scenario, Trial
from harness.run.hosts.side_by_side import MARGIN, MOST, Gate, Visit, add_trial, fits, killed_alone, slots_of, visit_of
from harness.run.slurm.request import NodeRequest
from tests.players.plans import WHERE, a_cell

MEMORY_ONLY = Limits(signals=dict.fromkeys(TIMES))
GIB = float(1 << 30)


def host(**more: Any) -> Host:
    return Host(**{"name": "here", "engine": "process", "gpus": "none", "where": WHERE, **more})


def cell(**fields: Any) -> Cell:
    return a_cell(script=Path("s.py"), limits=MEMORY_ONLY, **fields)


def trial(number: int = 1, *, end: End = "completed", beside: int = 0, peak_gib: float | None = None) -> Trial:
    peak = None if peak_gib is None else peak_gib * (1 << 20)
    return Trial(cell_id="c", number=number, key="k", end=end, conditions=Conditions(beside=beside), peak_rss_kib=peak,
                 message="why")  # fmt: skip


# ---------------------------------------------------------------- who


@pytest.mark.parametrize("name", TIMES)
def test_a_scenario_with_one_limited_time_is_measured_alone(name: str) -> None:
    """Other launches would make a version look slower than the one before."""
    own = Limits(signals={**MEMORY_ONLY.signals, name: 0.5})
    assert Scenario(name="s", where=WHERE, limits=own).compares_times
    assert not Scenario(name="s", where=WHERE, limits=MEMORY_ONLY).compares_times


def test_a_scenario_that_is_judged_by_its_exit_code_compares_no_times() -> None:
    assert not Scenario(name="s", where=WHERE, command=("x",), limits=Limits(exit_only=True)).compares_times


@pytest.mark.parametrize(
    ("asked", "facts", "gpus", "wanted"),
    [
        (host(), {"cpus": 2}, (), 2),
        (host(), {"cpus": 64}, (), MOST),
        (host(), {}, (), 1),
        (host(parallel=3), {"cpus": 8}, (), 3),
        (host(parallel=8), {"cpus": 2}, (), 2),
        (host(parallel=False), {"cpus": 8}, (), 1),
        (host(parallel=True), {"cpus": 8}, (), 1),
        (host(), {"cpus": 8}, ("GPU-1", "GPU-2", "GPU-1"), 2),
        (host(machine="gpu1"), {"cpus": 8}, (), 1),
        (host(engine="slurm", settings=NodeRequest(container="none")), {"cpus": 8}, (), 1),
    ],
)
def test_a_host_has_as_many_launches_as_it_has_room_for(
    asked: Host, facts: dict[str, int], gpus: tuple[str, ...], wanted: int
) -> None:
    assert slots_of(asked, facts, gpus) == wanted


def test_what_nobody_knows_the_memory_of_runs_with_no_other() -> None:
    assert visit_of(cell(), [], [], share_bytes=GIB).memory_bytes is None
    assert visit_of(cell(), [trial(peak_gib=2)], [], share_bytes=GIB).memory_bytes == 2 * GIB


def test_a_new_row_may_need_more_than_the_rows_that_are_known() -> None:
    others = [trial(peak_gib=2), trial(peak_gib=3)]
    assert visit_of(cell(), [], others, share_bytes=GIB).memory_bytes == MARGIN * 3 * GIB
    assert visit_of(cell(), [], others, share_bytes=20 * GIB).memory_bytes == 20 * GIB


def test_a_launch_takes_no_more_than_its_own_limit() -> None:
    limited = cell(memory_bytes=1 << 30)
    assert visit_of(limited, [], [], share_bytes=GIB).memory_bytes == GIB
    assert visit_of(limited, [trial(peak_gib=0.5)], [], share_bytes=GIB).memory_bytes == GIB / 2


loads = st.builds(
    Visit,
    memory_bytes=st.none() | st.floats(0, 100),
    gpus=st.frozensets(st.sampled_from(["a", "b"]), max_size=1),
)


@given(loads, st.lists(loads, max_size=4), st.integers(1, 4), st.none() | st.floats(0, 200))
def test_what_fits_is_within_every_bound(new: Visit, running: list[Visit], slots: int, memory: float | None) -> None:
    if not running:
        assert fits(new, running, slots=slots, memory_bytes=memory), "a launch alone always starts"
    elif fits(new, running, slots=slots, memory_bytes=memory):
        together = [new, *running]
        assert len(together) <= slots
        assert not any(new.gpus & each.gpus for each in running)
        known = [each.memory_bytes for each in together]
        assert None not in known
        assert memory is None or sum(each or 0 for each in known) <= memory


# ---------------------------------------------------------------- the gate


def test_a_timed_turn_is_alone_and_none_is_passed_over() -> None:
    """Every visitor comes in once, at most `slots` at a time, and one that must be alone is alone."""
    gate, lock, inside, seen = Gate(slots=3), threading.Lock(), [0, 0], []
    rng = random.Random(7)

    def visit(alone: bool) -> None:
        with gate.entered(Visit(alone=alone, memory_bytes=1.0)) as own:
            with lock:
                inside[alone] += 1
                seen.append((alone, *inside))
            threading.Event().wait(rng.random() / 500)
            with lock:
                inside[alone] -= 1
        assert own.others <= (0 if alone else 2)

    threads = [threading.Thread(target=visit, args=(number % 4 == 0,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(seen) == 40
    assert all((timed, beside) == (1, 0) if alone else timed == 0 and beside <= 3 for alone, beside, timed in seen)


def test_a_visitor_knows_how_many_were_beside_it() -> None:
    gate = Gate(slots=2)
    with gate.entered(Visit(memory_bytes=1.0)) as first:
        assert first.others == 0
        with gate.entered(Visit(memory_bytes=1.0)) as second:
            pass
    assert (first.others, second.others) == (1, 1)
    with gate.entered(Visit(memory_bytes=1.0)) as third:
        assert third.others == 0


def test_ctrl_c_ends_the_wait_at_the_gate() -> None:
    stopped = threading.Event()
    gate = Gate(slots=2, stopped=stopped.is_set)
    with gate.entered(Visit(alone=True)):
        stopped.set()
        with pytest.raises(Interrupted), gate.entered(Visit()):
            pass
    stopped.clear()
    with gate.entered(Visit(alone=True)) as last:
        assert last.others == 0


# ---------------------------------------------------------------- failures beside others


@pytest.mark.parametrize("end", ["crash", "oom", "hang", "setup"])
def test_a_failure_beside_others_accuses_no_version(end: End) -> None:
    """Two launches that need the same port, or more memory than there is, would make two good versions look broken."""
    run = CellRun(cell=cell())
    (told,) = add_trial(run, trial(end=end, beside=1), doubtful=False)
    assert told.end == "infrastructure"
    assert not run.measured
    assert run.alone
    assert f"{end} alongside 1 other launch," in told.message
    add_trial(run, trial(2), doubtful=False)
    assert [each.end for each in run.measured] == ["completed"]


def test_a_failure_that_comes_alone_too_counts_both_times() -> None:
    """A flaky version must be found as often as without other launches."""
    run = CellRun(cell=cell())
    add_trial(run, trial(1, end="crash", beside=2), doubtful=False)
    told = add_trial(run, trial(2, end="crash"), doubtful=False)
    assert [each.end for each in run.trials] == ["crash", "crash"]
    assert [each.number for each in told] == [1, 2]
    assert not run.doubted


def test_another_failure_alone_proves_nothing_of_the_first() -> None:
    run = CellRun(cell=cell())
    add_trial(run, trial(1, end="oom", beside=1), doubtful=False)
    add_trial(run, trial(2, end="crash"), doubtful=False)
    assert [each.end for each in run.trials] == ["infrastructure", "crash"]


def at(second: int, *, is_killed: bool = False, run: str = "r") -> Trial:
    """Return a launch of this second, with the number of its third: second 7 is launch 3 of three that take turns."""
    made = replace(trial(1 + second // 3), run=run, started=f"2026-01-01T00:00:{second:02}")
    return replace(made, end="infrastructure", failure=Failure(signal=signal.SIGKILL)) if is_killed else made


def row_of(*versions: list[Trial]) -> list[CellRun]:
    return [CellRun(cell=cell(), trials=list(trials)) for trials in versions]


GOOD, KILLED = [at(1), at(4), at(7)], [at(second, is_killed=True) for second in (0, 3, 6)]


def test_a_version_whose_every_launch_is_killed_is_bad() -> None:
    """A certain fault was never named: a program that ends itself by SIGKILL looked like one that others kill."""
    good, bad = row_of(GOOD, KILLED[:2])
    assert not killed_alone(bad, [good, bad])
    bad.trials.append(KILLED[2])
    bad.problem = "why"
    assert killed_alone(bad, [good, bad]) == bad.trials
    assert [each.end for each in bad.measured] == ["crash"] * 3
    assert bad.runnable
    assert not killed_alone(bad, [good, bad])
    bad.trials.append(at(9, is_killed=True))
    assert [each.number for each in killed_alone(bad, [good, bad])] == [4]


def test_two_versions_that_are_always_killed_are_both_bad() -> None:
    good, bad, newer = row_of(GOOD, KILLED, [at(second, is_killed=True) for second in (2, 5, 8)])
    row = [good, bad, newer]
    assert [len(killed_alone(each, row)) for each in row] == [0, 3, 3]


@pytest.mark.parametrize(
    ("others", "own"),
    [
        ([*GOOD, at(9, is_killed=True)], KILLED),
        (GOOD[:1], KILLED),
        ([], KILLED),
        ([replace(each, started="2025") for each in GOOD], KILLED),
        ([replace(each, run="q") for each in GOOD], KILLED),
        (GOOD, [*KILLED[:2], trial(3, end="infrastructure")]),
        (GOOD, [*KILLED[:2], trial(3)]),
    ],
    ids=["another is at times", "too few others", "no other", "before", "another run", "another problem", "one is not"],
)
def test_what_kills_others_too_accuses_no_version(others: list[Trial], own: list[Trial]) -> None:
    """A machine whose memory runs out, or a colleague who kills the wrong process, would make a good version bad."""
    run, other = row_of(own, others)
    assert not killed_alone(run, [run, other])
    assert {each.end for each in run.trials[:2]} == {"infrastructure"}


def test_a_launch_that_slows_down_beside_others_is_launched_again_alone() -> None:
    run = CellRun(cell=cell())
    add_trial(run, trial(beside=1), doubtful=False)
    assert not run.alone
    add_trial(run, trial(2, beside=1), doubtful=True)
    assert run.alone
