"""That swapping itself changes the result is an answer. Looking for its explanation must not lose it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any, cast
from unittest.mock import MagicMock, Mock

import pytest

from harness.errors import EngineUnreachable, HarnessError, InfrastructureError, Interrupted
from harness.flows.context import RunContext
from harness.model import Cell, CellRun, Host, Lane, Prepared
from harness.narrow import flow as narrow
from harness.narrow import flow as narrow_sides
from harness.narrow.evidence import NarrowRules
from harness.narrow.flow import Narrowing
from harness.narrow.inventory import Inventory, components
from harness.narrow.launches import NarrowScheduler
from harness.narrow.question import NarrowQuestion
from harness.run.engine import Kept
from harness.schedule import RowQueue
from tests.players import build
from tests.players.narrowing import A as OLD
from tests.players.narrowing import B as NEW
from tests.players.narrowing import coupled, image, inventory, sides
from tests.players.trials import failed

LANE = Lane(host=Host(name="local", engine="process", gpus="none", where=build.WHERE))
A, B = (replace(side, mapped={}) for side in (OLD, NEW))


class OnlyBFails:
    """A host on which only B itself fails, so that making B again heals it. `ends`: how the row ends."""

    def __init__(self, ends: HarnessError | None = None) -> None:
        self.ends, self.launcher = ends, Mock()

    def run(self, rows: RowQueue) -> None:
        (row,) = rows.ahead("local")
        made = cast(NarrowScheduler, cast(MethodType, row.propose).__self__)
        while (batch := row.propose(row)).runs:
            for run in batch.runs:
                run.prepared = Prepared(image=run.cell.image, reference="python", digest="d")
                run.trials.append(self._launched(run, is_b=run is made.runs[made.search.b]))
        if self.ends is not None:
            raise self.ends

    def _launched(self, run: CellRun, *, is_b: bool) -> Any:
        return failed() if is_b else build.trial("s-1", len(run.trials) + 1, build.flat())


class Search:
    """One search between two versions, with what it looked into and removed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.looks, self.removed, self._folder = 0, list[str](), folder
        self.seen: Inventory | HarnessError = B
        self.host = OnlyBFails()
        monkeypatch.setattr(narrow, "_worker", lambda *args, **more: self.host)
        monkeypatch.setattr(narrow_sides, "prepared", lambda *args: None)
        monkeypatch.setattr(narrow_sides.BothSides, "look", self._look)

    def _look(self, *args: object) -> tuple[Inventory, str]:
        self.looks += 1
        if isinstance(self.seen, HarnessError):
            raise self.seen
        return self.seen, ""

    def _remove(self, kept: Kept, say: object) -> None:
        self.removed.append(kept.name)

    def reason(self) -> str:
        """Return the reason of the answer that the method changes the result."""
        found = narrow.narrow(self._asked(), out=self._folder, fresh=True)
        assert (found.verdict, found.finding) == ("method", 7)
        return found.reason

    def _asked(self) -> Narrowing:
        of, variant = sides(A, B), build.variant("it")
        a, b = (Cell(image=image(version), lane=LANE, variant=variant) for version in ("1", "2"))
        found = build.finding(build.series("s", ["1", "2"]), LANE, variant, before="1", after="2")
        found = replace(found, metric="outcome", verdict="crash")
        context = RunContext(environ={}, progress=Mock(), stopped=threading.Event())
        return Narrowing(
            question=NarrowQuestion(finding=found, plan=MagicMock(), number=7, journal="one-narrow"),
            both=narrow_sides.BothSides(
                cells={"A": a, "B": b}, made={}, engine=Mock(remove=self._remove), lane=LANE, lease=Mock(),
                context=context,
            ),
            sides=of,
            coupling=coupled(of.inventories["A"], of.inventories["B"]),
            rules=NarrowRules(),
        )  # fmt: skip


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Search:
    return Search(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    "error", [Interrupted("interrupted"), InfrastructureError("killed"), EngineUnreachable("gone")]
)
def test_the_answer_is_kept_if_the_copy_cannot_be_looked_into(error: HarnessError, search: Search) -> None:
    """The whole search was lost, and its environments stayed."""
    search.seen = error
    assert search.reason() == ""
    assert search.looks == 1
    assert len(search.removed) == 2


def test_nothing_is_launched_after_ctrl_c(search: Search) -> None:
    search.host = OnlyBFails(ends=Interrupted("interrupted"))
    assert search.reason() == ""
    assert (search.looks, search.removed) == (0, []), "the same command goes on with them"


def test_what_is_fine_is_said_only_of_what_is_compared(search: Search) -> None:
    """It said "hold the same files", which had not been checked."""
    assert search.reason() == (
        "no distribution, mapped library or variable differs between the version and its copy; "
        "other files are not compared"
    )


def test_differences_beyond_the_named_ones_are_counted(search: Search) -> None:
    told = dict.fromkeys("abcdefgh", ("1", ()))
    search.seen = inventory({**told, **{name: (each.version, ()) for name, each in B.distributions.items()}},
                            mapped=B.mapped, variables=B.variables)  # fmt: skip
    assert len(components(B, search.seen)) == 8
    assert search.reason() == "the version and its copy differ in a, b, c, d, e, f and 2 more"
