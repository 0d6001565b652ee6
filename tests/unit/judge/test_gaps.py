"""Launches without a figure: what the others show is compared, and as precisely as they allow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.judge.comparison.round_tables import Columns, side_by_side, table_of, without_gaps
from harness.judge.history.changepoints import Laid, lay_out
from harness.judge.history.changes import find_changes, known_levels
from harness.judge.history.precision import rises
from tests.players.trials import changed, named, of_row, row_of

LOST = -math.inf
"""Stands for the figure of a launch that has none."""


def columns_of(logs: np.ndarray) -> Columns:
    """Return the figures of a table of logs, shape (rounds, versions)."""
    return {
        place: {("run", number): math.exp(log) for number, log in enumerate(own) if log > LOST}
        for place, own in enumerate(logs.T.tolist())
    }


def laid_of(known: np.ndarray, seed: int = 1) -> Laid:
    logs = np.random.default_rng(seed).normal(0, 0.01, known.shape)
    return lay_out(np.where(known, logs, math.nan))


def test_a_launch_that_failed_costs_no_others() -> None:
    """Each round lacked another version, so that two of them were left out, and the finding spanned three versions."""
    trials = row_of([1, 1, 1, 1.5, 1.5])
    for place, version in enumerate(trials):
        version[:] = [changed(trial, disturbed="hot") if at == place % 3 else trial for at, trial in enumerate(version)]
    assert named(find_changes(of_row(trials))) == [("step_time", "first_bad", 2, 3)]


def test_a_gap_is_filled_by_what_its_round_and_its_version_are() -> None:
    whole = np.add.outer([0.0, 0.3, -0.1, 0.2], [1.0, 1.1, 0.9])
    gaps = whole.copy()
    gaps[[0, 1, 3], [1, 0, 2]] = math.nan
    assert without_gaps(gaps) == pytest.approx(whole)
    table = table_of(columns_of(np.where(np.isnan(gaps), LOST, gaps)))
    assert table is not None
    assert np.ptp(table.levels - whole.mean(axis=0)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_the_error_of_a_difference_is_that_of_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = rng.random((5, 6)) > 0.3
    known[0] = known[1] = True
    laid, old, new = laid_of(known), np.array([0, 1]), np.array([3, 4, 5])
    rounds, versions = np.nonzero(known)
    design = np.concatenate([np.eye(5)[rounds], np.eye(6)[versions]], axis=1)
    contrast = np.concatenate([np.zeros(5), [-1 / 2, -1 / 2, 0, 1 / 3, 1 / 3, 1 / 3]])
    variance = float(contrast @ np.linalg.pinv(design.T @ design) @ contrast)
    assert laid.error(new, old) == pytest.approx(laid.spread.deviation * math.sqrt(variance))
    whole = laid_of(np.ones((5, 6), dtype=bool))
    assert whole.error(new, old) == pytest.approx(whole.spread.deviation * math.sqrt((1 / 2 + 1 / 3) / 5))


def test_rounds_that_hardly_connect_versions_tell_less_of_their_difference() -> None:
    """Two pairs have a round of their own each, so that a single round compares the pairs."""
    laid = laid_of(np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]], dtype=bool))
    within, between = (laid.error(np.array([0]), np.array([place])) ** 2 for place in (1, 2))
    assert between / within == pytest.approx(1.5)


def test_a_version_with_fewer_figures_is_ruled_out_less_precisely() -> None:
    logs, margins = np.random.default_rng(3).normal(0, 0.02, (6, 5)), []
    for lost in (slice(6, 6), slice(2, 6)):
        logs[lost, 3] = LOST
        table = table_of(columns_of(logs))
        assert table is not None
        assert table.positions == (0, 1, 2, 3, 4)
        margins.append(rises(known_levels("step_time", table, limit=0.1), 0)[3].margin)
    assert margins[1] > 1.3 * margins[0]


def test_no_more_equal_versions_are_accused_if_launches_lack_the_figure() -> None:
    accused, rng = 0, np.random.default_rng(5)
    for _ in range(100):
        logs = rng.normal(0, 0.05, (4, 8))
        logs[rng.random(logs.shape) < 0.15] = LOST
        table = table_of(columns_of(logs))
        accused += table is not None and bool(known_levels("step_time", table, limit=0.05).changes())
    assert accused <= 3


def test_a_round_of_few_versions_connects_nothing() -> None:
    """Versions of two days are not compared by one round of two of them: the oldest that ran together are."""
    logs = np.full((7, 6), LOST)
    logs[:3, :3] = logs[3:6, 3:] = 0.0
    logs[6, [0, 3]] = 0.0
    table = table_of(columns_of(logs))
    assert table is not None
    assert (table.positions, len(table.rounds)) == ((0, 1, 2), 3)
    assert table_of(columns_of(logs[6:])) is None


def test_what_ran_in_the_same_rounds_ran_side_by_side_whatever_it_shows() -> None:
    trials = row_of([1, 1, 1])
    trials[1] = [changed(trial, disturbed="hot") for trial in trials[1]]
    assert side_by_side(trials) == (0, 1, 2)
