"""Leaks of GPU memory, on generated traces with a known truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.judge.comparison.level_rules import RULES
from harness.judge.trace.trace_verdict import decide_at_look, is_shared, judge_trace
from harness.model import Floats, Look, TraceVerdict, Trial
from tests.players.trials import BUDGET, LIMITS, STEPS, cell_of, facts_of, memory, times, trace_of, trial_of

SEGMENT_KIB = 2048.0


def sampled(values: Floats, *, every: int) -> Floats:
    """Keep a number only in every n-th row, like the agent's samples of a GPU."""
    kept = np.full(len(values), np.nan)
    kept[::every] = values[::every]
    return kept


def pool(rate: float) -> Floats:
    """Return a pool that is exact to the byte, with what one step takes and gives back."""
    noise = np.random.default_rng(3).integers(0, 5, BUDGET) * 64.0
    return 300_000 + np.round(rate * np.arange(BUDGET) * 2) / 2 + noise


def segments(rate: float, *, start_kib: float = 800_000) -> Floats:
    """Return memory as the driver shows it: in pieces of 2 MiB, after what libraries take in the first steps."""
    warm = 200 * SEGMENT_KIB * (1 - np.exp(-np.arange(BUDGET) / 60))
    return start_kib + np.floor((warm + rate * np.arange(BUDGET)) / SEGMENT_KIB) * SEGMENT_KIB


def looks(*, pool_rate: float | None, reserved_rate: float | None) -> tuple[Look, ...]:
    def at(rate: float | None, step: int) -> float | None:
        return None if rate is None else 300_000 + rate * step

    return tuple(
        Look(step=step, values={"gpu_pool_kib": at(pool_rate, step), "gpu_reserved_kib": at(reserved_rate, step)})
        for step in STEPS.looks()
    )


BOTH, USED = looks(pool_rate=24.0, reserved_rate=24.0), looks(pool_rate=24.0, reserved_rate=None)
KEPT, NONE = looks(pool_rate=0, reserved_rate=24.0), looks(pool_rate=0, reserved_rate=0)


def trial(*, seed: int = 0, rss_rate: float = 0.0, looks: tuple[Look, ...] = (), **columns: Floats) -> Trial:
    thinned = {name: sampled(values, every=7) for name, values in columns.items()}
    rss = memory(rss_rate, seed=seed)
    trace = trace_of(rss, step_s=times(seed=seed), looks=looks)
    return trial_of(seed, trace=type(trace)(step=trace.step, columns={**trace.columns, **thinned}, looks=looks))


def judged(one: Trial) -> TraceVerdict:
    assert one.trace is not None
    return judge_trace(one.trace, limits=LIMITS, steps=STEPS, shared=is_shared(one.facts))


RATE = 24.0
LEAKS: list[tuple[str | None, dict[str, Any]]] = [
    ("gpu pool", {"gpu_kib": segments(RATE), "gpu_pool_kib": pool(RATE), "looks": BOTH}),
    ("gpu pool", {"gpu_kib": segments(0), "gpu_pool_kib": pool(RATE)}),
    ("gpu pool", {"gpu_kib": segments(RATE), "looks": USED}),
    ("gpu fragmentation", {"gpu_kib": segments(RATE), "gpu_pool_kib": pool(0), "looks": KEPT}),
    ("gpu driver", {"gpu_process_kib": segments(RATE), "gpu_kib": segments(0), "looks": NONE}),
    ("gpu driver", {"gpu_kib": segments(RATE), "gpu_pool_kib": pool(0), "looks": NONE}),
    (None, {"gpu_kib": segments(RATE), "looks": looks(pool_rate=0, reserved_rate=None)}),
    (None, {"gpu_kib": segments(RATE)}),
    (None, {"gpu_kib": segments(RATE), "looks": looks(pool_rate=RATE / 2, reserved_rate=RATE / 2)}),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "columns"), LEAKS)
def test_a_planted_leak_is_found_and_placed(layer: str | None, columns: dict[str, Any]) -> None:
    found = judged(trial(**columns))

    assert (found.verdict, found.growth.layer) == ("leak", layer)
    assert found.growth.rate == pytest.approx(RATE, rel=0.05)
    assert "KiB/step" in found.why
    assert "RSS is flat" in found.why


@pytest.mark.parametrize(
    "columns",
    [
        {"gpu_kib": segments(0), "gpu_pool_kib": pool(0)},
        {"gpu_kib": segments(0.2), "gpu_pool_kib": pool(0.2)},
        {"gpu_process_kib": segments(0), "gpu_kib": segments(RATE)},
        {"gpu_kib": np.full(BUDGET, np.nan)},
        {},
    ],
    ids=["flat", "below the limit", "another process grows", "not told", "no GPU"],
)
def test_what_is_no_leak_changes_nothing(columns: dict[str, Floats]) -> None:
    one = trial(**columns)
    assert one.trace is not None
    found = judged(one)
    alone = replace(one.trace, columns={name: one.trace.columns[name] for name in ("rss_kib", "step_s")})
    assert replace(found, beside={}) == judge_trace(alone, limits=LIMITS, steps=STEPS)
    assert not {growth.verdict for growth in found.beside.values()} & {"leak", "suspect"}


def test_what_gc_collect_gives_back_is_no_leak() -> None:
    """Cycles that hold tensors pile up until the look, which frees them."""
    since_look = np.arange(BUDGET) - np.select([np.arange(BUDGET) >= 2000, np.arange(BUDGET) >= 1000], [2000, 1000], 0)
    piled_up = 300_000 + RATE * since_look.astype(np.float64)
    one = trial(gpu_pool_kib=piled_up, looks=looks(pool_rate=0, reserved_rate=0))
    lost = trial(gpu_pool_kib=pool(RATE), looks=BOTH)

    assert judged(one).verdict == "flat"
    assert judged(lost).verdict == "leak"


def test_on_a_shared_gpu_the_device_s_growth_accuses_nobody() -> None:
    facts = facts_of({"gpus": [{"processes": 0}, {"processes": 2}]})
    shared = trial(gpu_kib=segments(RATE))
    found = judged(replace(shared, facts=facts))
    own = trial(gpu_process_kib=segments(RATE))

    assert (found.verdicts, found.growth.layer) == (("suspect",), None)
    assert "but other processes use the GPU" in found.why
    assert judged(replace(own, facts=facts)).verdict == "leak"


def test_beside_a_leak_of_resident_memory_the_gpu_is_mentioned() -> None:
    found = judged(trial(rss_rate=12.0, gpu_pool_kib=pool(RATE)))
    assert found.growth.rate == pytest.approx(12, rel=0.05)
    assert found.why.startswith("the framework's GPU memory grows")
    assert "RSS grows" in found.why


def test_the_reason_names_the_pattern_by_which_gpu_memory_grows() -> None:
    """A pool with saw-teeth was said to grow at the same rate throughout."""
    rows = np.arange(BUDGET, dtype=np.float64)
    teeth = 300_000 + RATE * rows + 300 * (rows % 350)
    found = judged(trial(gpu_pool_kib=np.round(teeth)))

    assert found.verdict == "leak"
    assert "in the floor under its saw-teeth" in found.why
    assert "at the same rate throughout" not in found.why


def test_two_launches_make_a_leak_of_the_cell() -> None:
    cell = cell_of([trial(seed=seed, gpu_pool_kib=pool(RATE)) for seed in range(2)])
    assert (cell.verdict, cell.layer) == ("leak", "gpu pool")
    assert cell.of("memory").value == pytest.approx(RATE, rel=0.05)


def test_memory_of_a_gpu_that_was_sampled_too_rarely_is_blind_and_not_good() -> None:
    """Seen on a real GPU: 4,000 steps of 0.1 ms gave eight samples, and a leak of 96 KiB/step was called good."""
    rarely = sampled(segments(96.0), every=BUDGET // 8)
    one = trial(gpu_pool_kib=pool(0))
    assert one.trace is not None
    hidden = type(one.trace)(step=one.trace.step, columns={**one.trace.columns, "gpu_process_kib": rarely})
    trials = [replace(one, trace=hidden, number=number) for number in (1, 2, 3)]

    memory_of = cell_of(trials).signals["memory"]

    assert memory_of.seen == "blind"
    assert memory_of.why == "the process's GPU memory: too few samples to judge: 8 of at least 64"
    assert memory_of.remedy == "more steps (`steps: {budget: …}`) would help"


def test_a_launch_goes_on_at_a_look_until_its_gpu_is_decided() -> None:
    still = np.full(BUDGET, 800_000.0)
    one = trial(gpu_process_kib=still, gpu_pool_kib=pool(0))
    assert one.trace is not None
    rarely = {**one.trace.columns, "gpu_process_kib": sampled(still, every=BUDGET // 8)}
    undecided = type(one.trace)(step=one.trace.step, columns=rarely)

    assert decide_at_look(one.trace, limits=LIMITS, steps=STEPS, whole_budget=False) == "stop"
    assert decide_at_look(undecided, limits=LIMITS, steps=STEPS, whole_budget=False) == "go"


def test_the_peak_of_a_pool_is_that_inside_the_steps() -> None:
    """Between steps a temporary tensor is gone: a sweep on a real GPU reported nothing about one
    that was 30 % larger.
    """
    versions = [[with_peak(300 << 10) for _ in range(3)], [with_peak(390 << 10) for _ in range(3)]]
    figure = RULES["pool_peak"].prepare(versions)

    assert [figure(trials[0]) for trials in versions] == [300 << 10, 390 << 10]


def with_peak(kib: int) -> Trial:
    one = trial(gpu_pool_kib=np.full(BUDGET, 34816.0))
    assert one.trace is not None
    peaks = tuple(Look(step=step, values={"gpu_pool_peak_kib": kib}) for step in STEPS.looks())
    return replace(one, trace=replace(one.trace, looks=peaks))
