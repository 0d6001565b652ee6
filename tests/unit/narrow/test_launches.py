"""What one launch of a hybrid shows: an unclear result is unresolved, and never mistaken for the fault of B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import Finding, Scenario, Trace, Trial, Variant
from harness.model.measured import End
from harness.narrow.launches import hybrid_outcomes
from harness.narrow.records import Hybrid, HybridOutcome
from tests.players import build
from tests.players.trials import BUDGET, STEPS, failed, trace_of, trial_of

A, B, MIXED = (
    Hybrid(base="A"),
    Hybrid(base="B", from_b=frozenset({"x", "y"})),
    Hybrid(base="A", from_b=frozenset({"x"})),
)
SCENARIO = Scenario(name="it", where=build.WHERE, steps=STEPS)
VARIANT = Variant(scenario=SCENARIO, params=())


def raised(error: str, **more: Any) -> Trial:
    """Return a launch that fails as a script does: the message is the traceback."""
    traceback = f'Traceback (most recent call last):\n  File "it.py", line 5, in step\n    raise it\n{error}'
    return failed(**{"message": traceback, "signal": None, **more})


BROKEN = raised("ValueError: broken")


def told(
    *mixed: Trial,
    metric: str,
    verdict: str = "",
    a: Sequence[Trial] = (),
    b: Sequence[Trial] = (),
    problem: str = "",
    scenario: Scenario = SCENARIO,
) -> list[HybridOutcome]:
    """Return the outcome of the launches of the hybrid in the middle."""
    finding = Finding(
        series="s", lane=build.HERE, variant=VARIANT, metric=metric, kind="first_bad", before="A", after="B",
        verdict=verdict,
    )  # fmt: skip
    launches, problems = {A: a, B: b, MIXED: mixed}, {MIXED: problem} if problem else {}
    found = hybrid_outcomes(launches, problems, ends=(A, B), finding=finding, scenario=scenario)
    return [each for each in found if each.hybrid == MIXED]


def state(*mixed: Trial, **more: Any) -> str | None:
    return told(*mixed, **more)[-1].state


def setup_failed(message: str = "ImportError: x needs y 2") -> Trial:
    return failed(end="setup", signal=None, message=message)


def returned(value: float, **more: Any) -> Trial:
    columns = {**trace_of(np.full(BUDGET, 80_000.0)).columns, "loss": np.full(BUDGET, value)}
    return trial_of(trace=Trace(step=np.arange(1.0, BUDGET + 1), columns=columns), **more)


@pytest.mark.parametrize(("mixed", "same"), [("queue.Empty", True), ("queue.Full", False), ("Empty: x", True)])
def test_exceptions_of_any_name_are_told_apart(mixed: str, same: bool) -> None:
    b = [raised("queue.Empty")]
    assert state(raised(mixed), metric="outcome", b=b) == ("bad" if same else "unresolved")


def test_a_failure_is_the_fault_only_if_b_fails_in_the_same_way() -> None:
    other = raised("KeyError: 'x'")
    killed = failed(signal=11)
    assert state(BROKEN, metric="outcome", b=[BROKEN]) == "bad"
    assert state(other, metric="outcome", b=[BROKEN]) == "unresolved"
    assert state(killed, metric="outcome", b=[BROKEN]) == "unresolved"
    assert state(trial_of(), metric="outcome", b=[BROKEN]) == "good"
    assert "KeyError" in told(other, metric="outcome", b=[BROKEN])[0].reason


@pytest.mark.parametrize("metric", ["memory", "step_time", "open_files", "metrics.loss"])
def test_a_hybrid_that_fails_is_not_accused_of_a_leak_or_of_being_slow(metric: str) -> None:
    ends = {"a": [returned(1.0)], "b": [returned(2.0)]}
    assert state(BROKEN, metric=metric, **ends) == "unresolved"


def test_a_hybrid_that_does_not_begin_is_unresolved_and_for_good_after_the_second_time() -> None:
    (once,) = told(setup_failed(), metric="outcome", b=[BROKEN])
    twice = told(setup_failed(), setup_failed(), metric="outcome", b=[BROKEN])
    assert (once.state, once.lasting) == ("unresolved", False)
    assert [(each.state, each.lasting) for each in twice] == [("unresolved", True)] * 2


@pytest.mark.parametrize(("message", "expected"), [("ImportError: x needs y 2", "bad"), ("KeyError: 1", "unresolved")])
def test_a_program_that_does_not_begin_has_the_fault_if_b_fails_in_the_same_way(message: str, expected: str) -> None:
    """A search for the package that a training cannot import saw the fault in no launch."""
    program = replace(SCENARIO, script=None, program=Path("train.py"))
    assert state(setup_failed(message), metric="outcome", b=[setup_failed()], scenario=program) == expected


def test_a_hybrid_that_cannot_be_made_is_unresolved_for_good() -> None:
    (one,) = told(metric="outcome", problem="no wheel for this Python")
    assert (one.state, one.lasting, one.reason) == ("unresolved", True, "no wheel for this Python")


def test_a_leak_is_told_by_its_own_verdict_and_a_short_launch_tells_nothing() -> None:
    assert state(trial_of(rate=8.0), metric="memory") == "bad"
    assert state(trial_of(rate=0.0), metric="memory") == "good"
    assert state(trial_of(steps=100), metric="memory") == "unresolved"


def test_step_times_become_figures_and_a_launch_without_one_is_unresolved() -> None:
    fast, slow = trial_of(0, ms=1.0), trial_of(1, ms=2.0)
    (one,) = told(trial_of(2, ms=2.0), metric="step_time", a=[fast], b=[slow])
    assert one.state is None
    assert one.figure == pytest.approx(0.002, rel=0.1), "in seconds"
    short = told(trial_of(2, ms=2.0, steps=3), metric="step_time", a=[fast], b=[slow])
    assert [(each.state, each.figure) for each in short] == [("unresolved", None)]


@pytest.mark.parametrize(("value", "expected"), [(1.1, "good"), (1.9, "bad"), (1.5, "unresolved"), (2.4, "bad")])
def test_a_returned_value_is_that_of_a_or_of_b_or_neither(value: float, expected: str) -> None:
    ends = {"a": [returned(1.0)], "b": [returned(2.0)]}
    assert state(returned(value), metric="metrics.loss", **ends) == expected


def test_values_that_do_not_tell_a_from_b_accuse_nobody() -> None:
    ends = {"a": [returned(1.0), returned(2.0)], "b": [returned(2.0), returned(1.5)]}
    assert state(returned(2.0), metric="metrics.loss", **ends) == "unresolved"


def test_a_value_that_vanished_is_the_fault_of_what_no_longer_returns_it() -> None:
    gone = returned(1.0)
    assert gone.trace is not None
    columns = {name: values for name, values in gone.trace.columns.items() if name != "loss"}
    gone = replace(gone, trace=replace(gone.trace, columns=columns))
    assert state(gone, metric="metrics.loss", verdict="vanished", a=[returned(1.0)], b=[gone]) == "bad"
    assert state(returned(1.0), metric="metrics.loss", verdict="vanished", a=[returned(1.0)], b=[gone]) == "good"


def test_a_value_that_is_no_longer_the_same_is_the_fault_of_what_does_not_repeat_it() -> None:
    """The values of B lie around that of A, so that no hybrid was like either."""
    ends = {"a": [returned(1.0), returned(1.0)], "b": [returned(0.9), returned(1.1)]}
    for value, expected in ((1.0, "good"), (1.02, "bad")):
        assert state(returned(value), metric="metrics.loss", verdict="varies", **ends) == expected


def test_a_value_that_is_not_finite_is_the_fault_where_b_has_it() -> None:
    nan = returned(1.0, not_finite={"loss": (3, 7)})
    assert state(nan, metric="metrics.loss", verdict="nan", b=[nan]) == "bad"
    assert state(returned(1.0), metric="metrics.loss", verdict="nan", b=[nan]) == "good"


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(set(get_args(End)) - {"completed", "stopped"})),
    st.sampled_from(("outcome", "memory", "step_time", "open_files", "metrics.loss")),
    st.sampled_from(("ValueError", "KeyError")),
    st.sampled_from((None, 6, 11)),
)
def test_no_launch_that_ends_in_another_way_than_b_s_is_ever_bad(
    end: str, metric: str, error: str, signal: int | None
) -> None:
    mixed = raised(f"{error}: broken", end=end, signal=signal)
    same = (end, error, signal) == ("crash", "ValueError", None)
    ends = {"a": [returned(1.0)], "b": [BROKEN]}
    expected = "bad" if same and metric == "outcome" else "unresolved"
    assert state(mixed, metric=metric, **ends) == expected
