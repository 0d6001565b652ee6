"""One trial of a launch on several nodes: what each node told is joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest

from harness.errors import InfrastructureError
from harness.model import Look, Trace, Trial
from harness.run.engine import Session
from harness.run.trial.nodes import Nodes, beside
from tests.players.trials import facts_of
from tests.waiting import until

STEPS = np.arange(1.0, 101.0)


def trial(rss_kib: float, *, grows: float = 0.0, looks: tuple[int, ...] = (50, 100), rank: int = 0, **of: Any) -> Trial:
    column = rss_kib + grows * STEPS
    told = {"rss_kib": column, "step_s": np.full(100, 0.01 * (1 + rank))}
    seen = tuple(Look(step=step, values={"rss_kib": column[step - 1], "cpu_s": step / 100}) for step in looks)
    fields: dict[str, Any] = {"end": "completed", "facts": facts_of({"ranks": [{"rank": rank, "steps": 1}]}), **of}
    return Trial(cell_id="c", number=1, key="k", trace=Trace(step=STEPS, columns=told, looks=seen), **fields)


def joined(*trials: Trial, failed: tuple[float, ...] = (), ended: tuple[float, ...] = (10.0, 10.0)) -> Trial:
    nodes = Nodes(names=("n1", "n2"), cancelled=lambda: False)
    nodes.trials = dict(enumerate(trials))
    nodes.failed, nodes.ended = dict(enumerate(failed or ended)), dict(enumerate(ended))
    return nodes.joined()


def test_memory_is_that_of_the_node_where_it_grows_and_never_of_two() -> None:
    """A node that was ended before its last look has another level: its last look would be that of the first node."""
    one = joined(trial(1000.0), trial(5000.0, grows=2.0, looks=(50,), rank=1))
    assert one.trace is not None
    assert one.trace.columns["rss_kib"].tolist() == (5000.0 + 2.0 * STEPS).tolist()
    assert [look.values for look in one.trace.looks] == [{"rss_kib": 5100.0, "cpu_s": 1.0}, {}]
    assert one.trace.columns["step_s"].tolist() == [0.02] * 100, "the slowest rank's"
    assert [rank.rank for rank in one.facts.ranks] == [0, 1]
    assert [rank.rank for rank in joined(trial(1.0), trial(1.0)).facts.ranks] == [0, 1], "numbered node by node"


def test_the_node_that_failed_first_is_named_and_those_of_which_nobody_knows() -> None:
    lost = trial(1.0, end="crash", message="Traceback\nrank 0: step 9: ConnectionError: reset")
    cause = trial(1.0, end="crash", message="rank 3: step 9: ValueError")
    near = joined(lost, cause, failed=(8.0, 8.01))
    assert near.message == "node n2: rank 3: step 9: ValueError; node n1: rank 0: step 9: ConnectionError: reset"
    late = joined(cause, lost, failed=(3.0, 8.0))
    assert (late.end, late.message) == ("crash", "node n1: rank 3: step 9: ValueError")
    assert joined(trial(1.0), lost, failed=(9.0, 9.5)).end == "completed", "a consequence of the good end"
    assert joined(trial(1.0), cause, failed=(9.0, 5.0)).end == "crash"


def test_a_node_that_was_not_looked_at_is_no_fault_and_not_good() -> None:
    silent = trial(1.0, end="interrupted", message="interrupted")
    crashed = trial(1.0, end="crash", message="rank 0: step 9: ConnectionError: reset")
    assert (joined(crashed, silent).end, joined(crashed, silent).message) == (
        "infrastructure",
        "node n2 no longer answers",
    )
    few = trial(1.0)
    assert few.trace is not None
    short = Trace(step=STEPS[:20], columns={name: own[:20] for name, own in few.trace.columns.items()})
    one = joined(trial(1.0), Trial(cell_id="c", number=1, key="k", end="completed", trace=short))
    assert (one.end, one.message) == (
        "infrastructure",
        "node n2: only 20 of the launch's 100 samples came from there",
    )


def test_an_error_in_the_conversation_with_another_node_ends_the_launch() -> None:
    """It printed a traceback, and the launch counted as good, although nobody had looked at that node."""
    nodes, session = Nodes(names=("n1", "n2"), cancelled=lambda: False), create_autospec(Session)

    def hold(session: Session, cut: Callable[[], bool]) -> tuple[Trial, float]:
        raise InfrastructureError("node n2: srun: error")

    with pytest.raises(InfrastructureError, match="node n2: srun"), beside(nodes, {"n2": session}, hold):
        assert until(lambda: nodes.cut(0, session), seconds=10), "the first node went on"
