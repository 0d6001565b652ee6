"""Replayed sweeps: how soon a user knows which version became slow."""

from __future__ import annotations

from benchmarks.replayed.histories import History, Version
from benchmarks.replayed.worker import replayed
from tests.nightly import many

VERSIONS = {"39.0.2": 120e-6, "40.0.2": 120e-6, "41.0.0": 0.036, "41.0.1": 0.036, "41.0.2": 0.036, "41.0.3": 120e-6,
            "42.0.8": 120e-6}  # fmt: skip


def test_a_step_300_times_slower_is_named_within_a_minute_of_steps() -> None:
    """It took ten minutes: each launch of a slow version ran for its 4,000 steps, or for at least 500."""
    history = History(
        name="dh", kind="slowdown", signal="step_time", first_bad="41.0.0", leak="0.5KiB", budget=4000,
        versions=tuple(
            Version(name=name, overhead_s=0.0, setup_s=0.0, first_step_s=0.0, step_s=step_s, noise=0.04,
                    rss=((1.0, 50_000.0), (4000.0, 50_016.0)))
            for name, step_s in VERSIONS.items()
        ),
    )  # fmt: skip
    for seed in range(many(1, 10)):
        told = replayed([history], search="full", seed=seed)
        named = told["rows"]["dh"]["named"]
        assert named is not None
        assert sum(each["seconds"] for each in told["launches"][:named]) <= 60
        assert sum(each["seconds"] for each in told["launches"]) <= 180
