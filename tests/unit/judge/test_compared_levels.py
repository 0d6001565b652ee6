"""The levels that reports show next to a finding are those that it compared."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge.history.changes import find_changes
from harness.model import Trial
from tests.nightly import many
from tests.players.trials import LIMITS, cell_of, of_row, shown, trial_of


def launches(
    ms: float, *, more_kib: float = 0.0, steps: int = 1000, run: str = "", spike_kib: float = 0.0
) -> list[Trial]:
    """Return three launches; each takes `more_kib` in addition to its noise, and `spike_kib` only in the last step."""
    trials = [trial_of(number, ms=ms, seed=int(1000 * ms), steps=steps, run=run) for number in range(3)]
    for trial in trials:
        assert trial.trace is not None
        trial.trace.columns["rss_kib"][:] += more_kib
        trial.trace.columns["rss_kib"][-1] += spike_kib
    return trials


@settings(max_examples=many(10, 250))
@given(slower=st.floats(1.3, 3), more_kib=st.floats(30_000, 300_000), longer=st.sampled_from([1000, 2000, 4000]))
def test_the_ratio_of_two_levels_is_the_finding_s_size(slower: float, more_kib: float, longer: int) -> None:
    """A reader who divides the two numbers next to a finding must get its size. Steps that only one version ran, where
    it took much more memory, are part of neither number.
    """
    trials = [launches(1.0), launches(slower, more_kib=more_kib, steps=longer, spike_kib=900_000 * (longer > 1000))]
    cells = shown(trials)
    found = {one.metric: one.effect for one in find_changes(of_row(trials), limits=LIMITS)}
    for metric in ("step_time", "peak_memory"):
        effect, before, after = found[metric], cells[0].of(metric).value, cells[1].of(metric)
        assert effect is not None
        assert after.value is not None
        assert after.value / (before or 0.0) == pytest.approx(effect.value, rel=1e-6)
        low, high = after.ci or (math.inf, 0.0)
        assert low <= after.value <= high


@pytest.mark.parametrize("searched", [False, True])
def test_the_unit_is_that_of_the_launches_own(searched: bool) -> None:
    trials = [launches(1.0), launches(2.0, more_kib=80_000)]
    for cell, own in zip(shown(trials, searched=searched), map(cell_of, trials), strict=True):
        for name in ("step_time", "peak_memory"):
            assert cell.of(name).value == pytest.approx(own.of(name).value, rel=0.02)


@pytest.mark.parametrize("searched", [False, True])
def test_the_peak_of_a_leak_is_compared_with_nothing(searched: bool) -> None:
    leaking = [trial_of(number, rate=24.0, seed=9) for number in range(3)]
    cells = shown([launches(1.0, steps=4000), leaking, launches(1.0, steps=4000)], searched=searched)
    assert not cells[1].of("peak_memory").is_compared
    assert cells[1].of("peak_memory").value == cell_of(leaking).of("peak_memory").value
    assert cells[1].of("step_time").is_compared
    assert (cells[0].of("peak_memory").value or 0.0) / 1024 == pytest.approx(78.2, abs=0.2)


def test_what_ran_on_another_day_has_its_own_figures_alone() -> None:
    trials = [launches(1.0, run="monday"), launches(1.0, run="monday"), launches(1.0, run="tuesday")]
    cells = shown(trials)
    assert not cells[2].of("step_time").is_compared
    assert cells[0].of("step_time").value == pytest.approx(0.001, rel=0.05)
