"""Generated traces that imitate real programs, with a known truth: quiet ones that look like leaks, and hidden leaks.

They have the same form as those of `generators`. The rule was tuned on these traces; `held_out` was written later.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.generators import Floats, Generator, Leak, Quiet, ar1, few_chunks, log_uniform, noise, staircase

# ---------------------------------------------------------------- quiet


def two_arenas(rng: Generator, count: int) -> Floats:
    """The sum of two staircases of 1 and 2 MiB chunks, each as high as its highest demand so far."""
    total = noise(rng, count)
    for chunk in (1024.0, 2048.0):
        need = ar1(rng.normal(0, chunk * rng.uniform(0.5, 2), count), float(rng.choice([0.9, 0.99])))
        total += np.ceil(np.maximum.accumulate(need) / chunk) * chunk
    return total


def logarithm_in_chunks(rng: Generator, count: int) -> Floats:
    """A logarithmic warm-up that takes 1 or 2 MiB at a time."""
    chunk = float(rng.choice([1024.0, 2048.0]))
    need = log_uniform(rng, 1e3, 3e4) * np.log1p(np.arange(count) / rng.uniform(1, 50))
    return np.ceil(need / chunk) * chunk + noise(rng, count)


def late_full_cache(rng: Generator, count: int) -> Floats:
    """An LRU cache: new keys become rarer, and the cache becomes full in the second half."""
    new = np.arange(count) ** rng.uniform(0.6, 1.0)
    full = new[int(rng.uniform(0.5, 0.93) * count)]
    return log_uniform(rng, 2e3, 1e5) * np.minimum(new / full, 1) + noise(rng, count)


def generations(rng: Generator, count: int) -> Floats:
    """Small saw-teeth on large ones: what survives the young generation waits for a collection of the old one."""
    young = int(rng.uniform(0.002, 0.02) * count)
    old = young * int(rng.integers(4, 20))
    shift = int(rng.integers(0, old))
    time = np.arange(count) + shift
    slope = log_uniform(rng, 4, 100)
    survives = rng.uniform(0.05, 0.5)
    return slope * ((time % young) * (1 - survives) + (time % old) * survives) + noise(rng, count)


def fragmentation(rng: Generator, count: int) -> Floats:
    """A random walk that drifts upwards until the heap is as fragmented as it gets."""
    step = log_uniform(rng, 2, 64)
    ends = rng.uniform(0.2, 0.7) * count
    moves = rng.normal(0, step, count) + step * rng.uniform(0.05, 0.5) * (np.arange(count) < ends)
    return np.asarray(np.cumsum(moves), dtype=np.float64) + noise(rng, count)


def power_law(rng: Generator, count: int) -> Floats:
    """Growth by a power of time, from 0.3 to 0.8, which slows down but never ends."""
    return log_uniform(rng, 2e3, 2e5) * (np.arange(count) / count) ** rng.uniform(0.3, 0.8) + noise(rng, count)


def power_law_in_chunks(rng: Generator, count: int) -> Floats:
    chunk = float(rng.choice([1024.0, 2048.0, 8192.0]))
    need = log_uniform(rng, 4e3, 2e5) * (np.arange(count) / count) ** rng.uniform(0.3, 0.8)
    return np.ceil(need / chunk) * chunk + noise(rng, count)


def compilations(rng: Generator, count: int) -> Floats:
    """A compiler works in bursts that become rarer; each keeps some memory and gives more back."""
    total = noise(rng, count)
    for _ in range(int(rng.integers(5, 40))):
        begin = int(min(rng.exponential(rng.uniform(0.03, 0.2)), 0.99) * count)
        length = int(rng.uniform(0.002, 0.02) * count)
        total[begin:] += log_uniform(rng, 50, 5e3)
        total[begin : begin + length] += log_uniform(rng, 1e3, 5e4)
    return total


def given_back_late(rng: Generator, count: int) -> Floats:
    """Memory that an epoch accumulates is freed at its end, late in the trace."""
    end = int(rng.uniform(0.6, 0.95) * count)
    slope = log_uniform(rng, 1, 50)
    time = np.arange(count)
    return np.where(time < end, slope * time, slope * (time - end)) + noise(rng, count)


def neighbours_spikes(rng: Generator, count: int) -> Floats:
    """Spikes in clusters, which are sometimes dense."""
    busy = np.repeat(rng.random(40) < 0.3, -(-count // 40))[:count]
    return noise(rng, count) + log_uniform(rng, 1e3, 1e5) * (busy & (rng.random(count) < rng.uniform(0.05, 0.5)))


def doubling(rng: Generator, count: int) -> Floats:
    """A table that doubles its size whenever it is full."""
    first = rng.uniform(0.005, 0.02) * count
    doublings = np.floor(np.log2(np.maximum(np.arange(count) / first, 1)))
    return log_uniform(rng, 50, 2e3) * 2**doublings + noise(rng, count)


def thread_arenas(rng: Generator, count: int) -> Floats:
    """Each thread of a pool takes its own arena when it is first busy."""
    times = rng.exponential(rng.uniform(0.05, 0.25) * count, int(rng.integers(4, 17)))
    return log_uniform(rng, 256, 8192) * (np.arange(count)[:, None] >= times).sum(axis=1) + noise(rng, count)


def batches(rng: Generator, count: int) -> Floats:
    """Demand jumps between a few levels."""
    edges = np.sort(rng.integers(0, count, int(rng.integers(3, 20))))
    levels = rng.uniform(0, 1, len(edges) + 1) * log_uniform(rng, 1e3, 1e5)
    return levels[np.searchsorted(edges, np.arange(count), side="right")] + noise(rng, count)


def never_given_back(rng: Generator, count: int) -> Floats:
    """A noisy demand that grows ever more rarely, in a heap that gives nothing back, so that its maximum stays."""
    need = (few_chunks, staircase, late_full_cache, power_law_in_chunks)[int(rng.integers(4))]
    return np.asarray(np.maximum.accumulate(need(rng, count)), dtype=np.float64)


QUIET: Mapping[str, Quiet] = {
    "two arenas": two_arenas,
    "logarithm in chunks": logarithm_in_chunks,
    "late full cache": late_full_cache,
    "generations": generations,
    "fragmentation": fragmentation,
    "power law": power_law,
    "power law in chunks": power_law_in_chunks,
    "compilations": compilations,
    "given back late": given_back_late,
    "neighbour's spikes": neighbours_spikes,
    "doubling": doubling,
    "thread arenas": thread_arenas,
    "batches": batches,
    "never given back": never_given_back,
}


# ---------------------------------------------------------------- leaks; `rate` in KiB a step


def large_chunks(rng: Generator, count: int, rate: float) -> Floats:
    """The same amount at even distances, 12 to 30 times in the trace: up to about 10 MiB at a time."""
    every = count / rng.uniform(12, 30)
    return rate * every * np.floor(np.arange(count) / every + rng.random()) + noise(rng, count)


def under_bursts(rng: Generator, count: int, rate: float) -> Floats:
    total = rate * np.arange(count) + noise(rng, count)
    for _ in range(int(rng.integers(2, 12))):
        begin = int(rng.uniform(0, count))
        total[begin : begin + int(rng.uniform(0.005, 0.03) * count)] += rate * count * rng.uniform(0.02, 0.2)
    return total


def under_generations(rng: Generator, count: int, rate: float) -> Floats:
    young = int(rng.uniform(0.002, 0.02) * count)
    time = np.arange(count) + int(rng.integers(0, count))
    teeth = (time % young) + (time % (6 * young)) * rng.uniform(0.05, 0.5)
    return rate * np.arange(count) + rate * rng.uniform(0.5, 4) * teeth + noise(rng, count)


def uneven_teeth(rng: Generator, count: int, rate: float) -> Floats:
    edges = np.cumsum(rng.uniform(0.02, 0.1, 64) * count)
    since = np.arange(count) - np.concatenate(([0], edges))[np.searchsorted(edges, np.arange(count), side="right")]
    return rate * np.arange(count) + since * rate * rng.uniform(1, 4) + noise(rng, count)


def after_a_logarithm(rng: Generator, count: int, rate: float) -> Floats:
    """A leak in a program whose own memory grows logarithmically, by up to a quarter of the total loss."""
    grown = np.log1p(np.arange(count) / rng.uniform(1, 20))
    return rate * np.arange(count) + rate * count * rng.uniform(0, 0.25) * grown / grown[-1] + noise(rng, count)


LEAKS: Mapping[str, Leak] = {
    "large chunks": large_chunks,
    "under bursts": under_bursts,
    "under generations": under_generations,
    "uneven teeth": uneven_teeth,
    "after a logarithm": after_a_logarithm,
}
