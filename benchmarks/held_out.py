"""Generated traces that were written after the rule was tuned, and for which it was never changed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.generators import Floats, Generator, Leak, Quiet, ar1, log_uniform, noise

# ---------------------------------------------------------------- quiet


def stretched_warm_up(rng: Generator, count: int) -> Floats:
    """A stretched exponential: fast at first, with a long tail."""
    reach, power = rng.uniform(0.02, 0.2) * count, rng.uniform(0.4, 0.9)
    return log_uniform(rng, 1e3, 2e5) * (1 - np.exp(-((np.arange(count) / reach) ** power))) + noise(rng, count)


def saturation(rng: Generator, count: int) -> Floats:
    """Growth that approaches a limit: t / (t + half)."""
    time = np.arange(count)
    return log_uniform(rng, 1e3, 2e5) * time / (time + rng.uniform(0.02, 0.3) * count) + noise(rng, count)


def slow_return(rng: Generator, count: int) -> Floats:
    """A walk that returns to its mean over up to a quarter of the trace."""
    moves = rng.normal(0, log_uniform(rng, 100, 5e3), count)
    return ar1(moves, 1 - 1 / (count * rng.uniform(0.02, 0.25))) + noise(rng, count)


def trimmed_heap(rng: Generator, count: int) -> Floats:
    """Chunks are taken at random times, and given back when enough of them are free."""
    chunk = float(rng.choice([256.0, 1024.0, 4096.0]))
    taken = np.cumsum(rng.random(count) < rng.uniform(5, 40) / count)
    return chunk * (taken % int(rng.integers(2, 9))) + noise(rng, count)


def larger_batches(rng: Generator, count: int) -> Floats:
    """Saw-teeth that become larger at a random time."""
    period = int(rng.uniform(0.01, 0.06) * count)
    size = np.where(np.arange(count) < rng.uniform(0.2, 0.8) * count, 1.0, rng.uniform(1.5, 4))
    return log_uniform(rng, 4, 200) * size * (np.arange(count) % period) + noise(rng, count)


def reading_a_file(rng: Generator, count: int) -> Floats:
    """A mapped file whose pages become resident one by one, with pauses, until the file ends."""
    reads = rng.random(count) < rng.uniform(0.1, 0.9)
    read = np.cumsum(reads * rng.exponential(log_uniform(rng, 4, 100), count))
    return np.minimum(read, read[int(rng.uniform(0.1, 0.9) * count)]) + noise(rng, count)


def resized_table(rng: Generator, count: int) -> Floats:
    """A table that grows by half whenever it is full, with a spike while it is copied."""
    sizes = log_uniform(rng, 200, 5e3) * 1.5 ** np.arange(40)
    full = rng.uniform(0.005, 0.05) * count * 1.5 ** np.arange(40)
    index = np.minimum(np.searchsorted(full, np.arange(count)), int(rng.integers(3, 12)))
    copying = np.diff(index, prepend=0) > 0
    return sizes[index] * np.where(copying, 1.7, 1.0) + noise(rng, count)


QUIET: Mapping[str, Quiet] = {
    "stretched warm-up": stretched_warm_up,
    "saturation": saturation,
    "slow return": slow_return,
    "trimmed heap": trimmed_heap,
    "larger batches": larger_batches,
    "reading a file": reading_a_file,
    "resized table": resized_table,
}


# ---------------------------------------------------------------- leaks; `rate` in KiB a step


def per_epoch(rng: Generator, count: int, rate: float) -> Floats:
    """Each of 12 to 40 epochs keeps memory at its end, and uses temporary memory in its second half."""
    length = int(count / rng.integers(12, 41))
    time = np.arange(count) + int(rng.integers(0, length))
    return (
        rate * length * (time // length)
        + rate * length * rng.uniform(0, 0.5) * ((time % length) > length / 2)
        + noise(rng, count)
    )


def two_paces(rng: Generator, count: int, rate: float) -> Floats:
    """A rate that changes once, by up to a tenth; `rate` is the later rate."""
    edge, before = rng.uniform(0.1, 0.9) * count, rng.uniform(0.9, 1.1)
    time = np.arange(count)
    return rate * (before * np.minimum(time, edge) + np.maximum(time - edge, 0)) + noise(rng, count)


def under_slow_return(rng: Generator, count: int, rate: float) -> Floats:
    """A leak under a walk that returns to its mean; the sigma of the walk is a fortieth of the total loss."""
    return rate * np.arange(count) + ar1(rng.normal(0, rate * count / 40, count), 1 - 1 / (count * 0.02))


def many_sizes(rng: Generator, count: int, rate: float) -> Floats:
    """Losses at random times, 20 to 400 in total, with exponentially distributed sizes."""
    share = log_uniform(rng, 20, 400) / count
    return np.cumsum((rng.random(count) < share) * rng.exponential(rate / share, count)) + noise(rng, count)


def in_clusters(rng: Generator, count: int, rate: float) -> Floats:
    """Losses of one size in 30 to 200 clusters, each of 1 to 6 losses within ten steps."""
    clusters = int(rng.integers(30, 201))
    size = rate * count / (clusters * 3.5)
    places = np.repeat(rng.uniform(0, count, clusters), rng.integers(1, 7, clusters))
    places = np.sort(places + rng.uniform(0, 10, len(places)))
    return size * np.searchsorted(places, np.arange(count)) + noise(rng, count)


LEAKS: Mapping[str, Leak] = {
    "per epoch": per_epoch,
    "two paces": two_paces,
    "under slow return": under_slow_return,
    "many sizes": many_sizes,
    "in clusters": in_clusters,
}
