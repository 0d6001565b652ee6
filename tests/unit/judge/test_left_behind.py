"""What one version leaves behind (a cache, a full disk) must not be another version's fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.judge.history.left_behind import began_to_fail
from harness.judge.row import judge_row
from harness.model import Trials, Varied
from tests.players.searching import row
from tests.players.trials import made_trial, row_run


def launches(*order: str, versions: int = 3):
    """Return the launches of each version, in the order in which they ran: `2x` is one of version 2 that crashed."""
    told = [[] for _ in range(versions)]
    for at, each in enumerate(order):
        end = "crash" if each.endswith("x") else "completed"
        own = told[int(each[0]) - 1]
        own.append(made_trial(number=len(own) + 1, end=end, started=f"2026-01-01T00:00:{at:02}", message="exit code 1"))
    return told


POISONED = ("1", "2", "3", "1x", "3", "2x", "1x", "2x", "3")


def test_a_version_is_not_blamed_for_a_cache_that_another_one_left() -> None:
    """Version 3 writes a cache that 1 and 2 cannot read: `crashes in 89 % of launches in every version from 1`."""
    cells = row(3, command=("run",))
    for run, own in zip(cells, launches(*POISONED), strict=True):
        run.cell = replace(run.cell, image=replace(run.cell.image, source=Varied(variable="LIB")))
        run.trials += [replace(trial, cell_id=run.cell.id) for trial in own]
    judged = judge_row(row_run(cells, asked=Trials(least=3, most=6)))
    assert judged.findings == ()
    assert [cell.verdict.verdict for cell in judged.cells] == ["inconclusive", "inconclusive", "flat"]
    assert "every launch ended well up to that of 2 at 2026-01-01 00:00:02" in judged.cells[0].verdict.why
    assert "--fresh" in judged.warnings[0]


@pytest.mark.parametrize(
    ("order", "share", "found"),
    [
        (POISONED, True, True),
        (("1", "3", "2x", "1x", "2x", "1x", "1x", "1x", "2x"), True, True),  # 2 never came before 3
        (("1", "2", "3x", "1", "2", "3x", "3x"), True, False),  # 3 is bad
        (("1", "2x", "3x", "1", "2x", "3x"), True, False),  # bad since 2
        (("2", "1", "3x", "2x", "1", "2", "3x", "2x"), True, False),  # flaky since 2
        (("2", "3x", "1", "2x", "3x"), True, False),  # flaky since 2, by its few launches
        (POISONED, False, False),  # each launch began anew, so that it takes more to believe it
        ((*"123123123", *["1x", "2x", "3x"] * 3), False, True),  # a full disk
    ],
)
def test_a_moment_is_told_from_a_version_and_from_chance(order: tuple[str, ...], share: bool, found: bool) -> None:
    assert (began_to_fail(launches(*order), share=share) is not None) is found
