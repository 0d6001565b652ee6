"""Generated traces with a known truth: quiet traces, which must never be called bad, and leaks, which should be found.

Each generator takes a random generator and the number of steps n (leaks also their true rate in KiB a step), and
returns memory in KiB, shape (n,). Depths, rates, times and noise are drawn independently for every trace, so that a
rule that is tuned to one figure fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator
Quiet = Callable[[Generator, int], Floats]
Leak = Callable[[Generator, int, float], Floats]

BASE_KIB = 80_000.0
PAGE_KIB = 4.0


def pages(values: Floats) -> Floats:
    """Return memory in KiB, rounded to whole pages as the kernel counts it."""
    return np.asarray(np.round((values + BASE_KIB) / PAGE_KIB) * PAGE_KIB, dtype=np.float64)


def noise(rng: Generator, count: int) -> Floats:
    """Return white or autocorrelated noise with a sigma of 0 to 128 KiB."""
    sigma = float(rng.choice([0.0, 4.0, 32.0, 64.0, 128.0]))
    white = rng.normal(0, sigma, count)
    memory = float(rng.choice([0.0, 0.5, 0.9]))
    return white if memory == 0 else ar1(white, memory)


def ar1(shocks: Floats, memory: float) -> Floats:
    """Return shocks of which each step remembers a part; scipy's lfilter does the same and takes 0.8 s to import."""
    scaled = (np.sqrt(1 - memory**2) * shocks).tolist()
    return np.fromiter(accumulate(scaled, lambda before, shock: shock + memory * before), dtype=np.float64)


def log_uniform(rng: Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


# ---------------------------------------------------------------- quiet


def steady(rng: Generator, count: int) -> Floats:
    return noise(rng, count)


def warm_up_exponential(rng: Generator, count: int) -> Floats:
    height = log_uniform(rng, 1e3, 3e5)
    return height * (1 - np.exp(-np.arange(count) / (count * rng.uniform(0.01, 0.15)))) + noise(rng, count)


def warm_up_logarithmic(rng: Generator, count: int) -> Floats:
    return log_uniform(rng, 300, 2e4) * np.log1p(np.arange(count) / rng.uniform(1, 50)) + noise(rng, count)


def plateaus(rng: Generator, count: int) -> Floats:
    """Several levels, each reached by a ramp and then kept."""
    total = np.zeros(count)
    for _ in range(int(rng.integers(1, 4))):
        begin = rng.uniform(0, 0.35) * count
        length = rng.uniform(0.01, 0.15) * count
        total += log_uniform(rng, 500, 2e5) * np.clip((np.arange(count) - begin) / length, 0, 1)
    return total + noise(rng, count)


def saw_teeth(rng: Generator, count: int) -> Floats:
    """A garbage collector runs when enough garbage has accumulated."""
    period = int(rng.uniform(0.005, 0.05) * count)
    garbage = (np.arange(count) + rng.integers(0, period)) % period
    return garbage * log_uniform(rng, 4, 400) + noise(rng, count)


def uneven_saw_teeth(rng: Generator, count: int) -> Floats:
    """Saw-teeth of unequal length, each up to an eighth of the trace."""
    edges = np.cumsum(rng.uniform(0.02, 0.125, 64) * count)
    since = np.arange(count) - np.concatenate(([0], edges))[np.searchsorted(edges, np.arange(count), side="right")]
    return since * log_uniform(rng, 4, 100) + noise(rng, count)


def random_walk(rng: Generator, count: int) -> Floats:
    moves = rng.normal(0, log_uniform(rng, 4, 256), count)
    return np.asarray(np.cumsum(moves), dtype=np.float64) + noise(rng, count)


def lazy_random_walk(rng: Generator, count: int) -> Floats:
    moves = rng.normal(0, log_uniform(rng, 16, 2048), count) * (rng.random(count) < rng.uniform(0.005, 0.1))
    return np.asarray(np.cumsum(moves), dtype=np.float64) + noise(rng, count)


def staircase(rng: Generator, count: int) -> Floats:
    """An arena that grows by 1 or 2 MiB whenever a demand that fluctuates about a mean reaches a new maximum."""
    chunk = float(rng.choice([1024.0, 2048.0]))
    need = ar1(rng.normal(0, chunk * rng.uniform(0.5, 2), count), float(rng.choice([0.9, 0.99])))
    return np.asarray(np.ceil(np.maximum.accumulate(need) / chunk) * chunk, dtype=np.float64) + noise(rng, count)


def few_chunks(rng: Generator, count: int) -> Floats:
    """One to four chunks of 1 or 2 MiB, at random times."""
    chunk = float(rng.choice([1024.0, 2048.0]))
    times = rng.uniform(0, count, int(rng.integers(1, 5)))
    return chunk * (np.arange(count)[:, None] >= times).sum(axis=1) + noise(rng, count)


def spikes(rng: Generator, count: int) -> Floats:
    return noise(rng, count) + log_uniform(rng, 1e3, 1e5) * (rng.random(count) < 0.01)


def bursts(rng: Generator, count: int) -> Floats:
    total = noise(rng, count)
    for _ in range(int(rng.integers(2, 12))):
        begin = int(rng.uniform(0, count))
        total[begin : begin + int(rng.uniform(0.01, 0.08) * count)] += log_uniform(rng, 1e3, 5e4)
    return total


def cache_fill(rng: Generator, count: int) -> Floats:
    full = rng.uniform(0.1, 0.7) * count
    return log_uniform(rng, 1, 50) * np.minimum(np.arange(count), full) + noise(rng, count)


def cache_fill_and_clear(rng: Generator, count: int) -> Floats:
    size = int(rng.uniform(0.1, 0.45) * count)
    return log_uniform(rng, 1, 50) * (np.arange(count) % size) + noise(rng, count)


def late_steady_state(rng: Generator, count: int) -> Floats:
    reach = rng.uniform(0.4, 0.8) * count
    return log_uniform(rng, 1e3, 1e5) * np.minimum(np.arange(count) / reach, 1) ** rng.uniform(0.5, 1) + noise(
        rng, count
    )


def slow_wave(rng: Generator, count: int) -> Floats:
    """Demand that comes and goes, as by day and night."""
    phase = np.arange(count) / count * rng.uniform(1.5, 6) * 2 * np.pi + rng.uniform(0, 2 * np.pi)
    return log_uniform(rng, 300, 3e4) * np.sin(phase) + noise(rng, count)


def slower_wave(rng: Generator, count: int) -> Floats:
    """A wave with so long a period that memory falls in the first half and rises in the second."""
    trough, period = rng.uniform(0.45, 0.55) * count, rng.uniform(1.2, 2.1) * count
    wave = np.cos((np.arange(count) - trough) / period * 2 * np.pi)
    return -log_uniform(rng, 300, 3e4) * wave + noise(rng, count)


def square_root(rng: Generator, count: int) -> Floats:
    """A table of values seen so far, in which new values become rarer."""
    return log_uniform(rng, 30, 3e3) * np.sqrt(np.arange(count)) + noise(rng, count)


def late_plateau(rng: Generator, count: int) -> Floats:
    """A cache that becomes full only shortly before the end."""
    return log_uniform(rng, 1, 50) * np.minimum(np.arange(count), rng.uniform(0.8, 0.92) * count) + noise(rng, count)


def one_workspace(rng: Generator, count: int) -> Floats:
    """A single allocation in the first half, which is kept; nothing else changes."""
    kib = log_uniform(rng, 3e3, 3e5)
    return kib * (np.arange(count) >= int(rng.uniform(0, 0.5) * count)).astype(float)


def stairs_that_end(rng: Generator, count: int) -> Floats:
    """Two to five chunks of 1 or 2 MiB at a steady pace, and no more after that."""
    chunk, every = float(rng.choice([1024.0, 2048.0])), rng.uniform(0.01, 0.1) * count
    return chunk * np.minimum(np.arange(count) // every, rng.integers(2, 6))


QUIET: Mapping[str, Quiet] = {
    "steady": steady,
    "warm-up exponential": warm_up_exponential,
    "warm-up logarithmic": warm_up_logarithmic,
    "plateaus": plateaus,
    "GC saw-teeth": saw_teeth,
    "uneven saw-teeth": uneven_saw_teeth,
    "random walk": random_walk,
    "lazy random walk": lazy_random_walk,
    "staircase": staircase,
    "few chunks": few_chunks,
    "spikes": spikes,
    "bursts": bursts,
    "cache fill": cache_fill,
    "cache fill and clear": cache_fill_and_clear,
    "late steady state": late_steady_state,
    "slow wave": slow_wave,
    "slower wave": slower_wave,
    "square root": square_root,
    "late plateau": late_plateau,
    "one workspace": one_workspace,
    "stairs that end": stairs_that_end,
}


# ---------------------------------------------------------------- leaks; `rate` in KiB a step


def constant(rng: Generator, count: int, rate: float) -> Floats:
    return rate * np.arange(count) + noise(rng, count)


def intermittent(rng: Generator, count: int, rate: float) -> Floats:
    share = rng.uniform(0.02, 0.5)
    return np.cumsum((rng.random(count) < share) * rate / share) + noise(rng, count)


def chunked(rng: Generator, count: int, rate: float) -> Floats:
    chunk = min(float(rng.choice([64.0, 132.0, 1024.0, 2048.0])), rate * count / 24)
    return np.floor(rate * np.arange(count) / chunk) * chunk + noise(rng, count)


def late_start(rng: Generator, count: int, rate: float) -> Floats:
    return rate * np.maximum(np.arange(count) - rng.uniform(0.1, 0.6) * count, 0) + noise(rng, count)


def accelerating(rng: Generator, count: int, rate: float) -> Floats:
    """A leak that accelerates, with an average of `rate` over the second half."""
    time = np.arange(count) / count
    shape = time ** rng.uniform(1.2, 2.5)
    return rate * count * 0.5 * shape / (1 - shape[count // 2]) + noise(rng, count)


def under_noise(rng: Generator, count: int, rate: float) -> Floats:
    loud = ar1(rng.normal(0, rate * count / 20, count), float(rng.choice([0.0, 0.7])))
    return rate * np.arange(count) + loud


def with_warm_up(rng: Generator, count: int, rate: float) -> Floats:
    return rate * np.arange(count) + warm_up_exponential(rng, count) * 0.3


def wide_saw_teeth(rng: Generator, count: int, rate: float) -> Floats:
    period = int(rng.uniform(0.03, 0.15) * count)
    teeth = ((np.arange(count) + rng.integers(0, period)) % period) * rate * rng.uniform(1, 6)
    return rate * np.arange(count) + teeth + noise(rng, count)


def rare_large(rng: Generator, count: int, rate: float) -> Floats:
    share = rng.uniform(12, 60) / count
    return np.cumsum((rng.random(count) < share) * rate / share) + noise(rng, count)


LEAKS: Mapping[str, Leak] = {
    "constant": constant,
    "intermittent": intermittent,
    "chunked": chunked,
    "late start": late_start,
    "accelerating": accelerating,
    "under noise": under_noise,
    "after a warm-up": with_warm_up,
    "wide saw-teeth": wide_saw_teeth,
    "rare large losses": rare_large,
}
