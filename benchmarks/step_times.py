"""Generated step times in seconds with a known truth: slowdowns, and quiet ones that drift or jump with the machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.generators import Floats, Generator, Quiet, log_uniform


def _times(rng: Generator, count: int) -> Floats:
    spread = float(rng.choice([0.005, 0.02, 0.1]))
    return np.asarray(rng.lognormal(np.log(1e-3), spread, count), dtype=np.float64)


def steady(rng: Generator, count: int) -> Floats:
    return _times(rng, count) * np.where(rng.random(count) < 0.01, rng.uniform(2, 20), 1.0)


def cpu_steps(rng: Generator, count: int) -> Floats:
    """The clock frequency changes at times, or other load appears: two states, up to a factor of 2 apart."""
    edges = rng.random(count) < rng.uniform(1, 8) / count
    return _times(rng, count) * np.where(np.cumsum(edges) % 2 == 1, rng.uniform(1.1, 2.0), 1.0)


def two_states(rng: Generator, count: int) -> Floats:
    """Two states a factor of 2 apart, as on shared machines: for seconds at a time, with a share that changes."""
    share = np.linspace(rng.uniform(0, 1), rng.uniform(0, 1), 64)
    slow = np.repeat(rng.random(64) < share, -(-count // 64))[:count]
    return _times(rng, count) * np.where(slow, 2.0, 1.0)


def thermal_drift(rng: Generator, count: int) -> Floats:
    """The card or CPU warms up: steps become a few per cent slower, with a time constant."""
    warm = 1 - np.exp(-np.arange(count) / (count * rng.uniform(0.05, 0.5)))
    return _times(rng, count) * (1 + rng.uniform(0.01, 0.09) * warm)


def throttling(rng: Generator, count: int) -> Floats:
    """The clock frequency drops in two to four steps as the card gets hot, and stays low."""
    edges = np.sort(rng.uniform(0.02, 0.6, int(rng.integers(2, 5)))) * count
    steps = (np.arange(count)[:, None] >= edges).sum(axis=1)
    return _times(rng, count) * (1 + rng.uniform(0.02, 0.1)) ** steps


def clock_walk(rng: Generator, count: int) -> Floats:
    walk = np.cumsum(rng.normal(0, 1, count)) / np.sqrt(count) * rng.uniform(0.01, 0.08)
    return _times(rng, count) * np.exp(walk)


def suspended(rng: Generator, count: int) -> Floats:
    """A laptop was closed: one step took minutes."""
    times = _times(rng, count)
    times[int(rng.integers(0, count))] += log_uniform(rng, 60, 36_000)
    return times


def clock_set(rng: Generator, count: int) -> Floats:
    """The clock was set while a step ran: the step seems to take hours, or a negative time."""
    times = _times(rng, count)
    times[int(rng.integers(0, count))] += float(rng.choice([-1, 1])) * log_uniform(rng, 1, 1e5)
    return times


def busy_neighbour(rng: Generator, count: int) -> Floats:
    """Other load for half of the trace, of varying strength."""
    begin = int(rng.uniform(0, 0.5) * count)
    load = np.zeros(count)
    load[begin : begin + count // 2] = rng.uniform(0.1, 1.0) * (rng.random(len(load[begin : begin + count // 2])) < 0.7)
    return _times(rng, count) * (1 + load)


QUIET: Mapping[str, Quiet] = {
    "steady times": steady,
    "CPU steps": cpu_steps,
    "two states": two_states,
    "thermal drift": thermal_drift,
    "throttling": throttling,
    "clock walk": clock_walk,
    "suspended": suspended,
    "clock set": clock_set,
    "busy neighbour": busy_neighbour,
}


def linear_slowdown(rng: Generator, count: int) -> Floats:
    return _times(rng, count) * (1 + rng.uniform(0.3, 4) * np.arange(count) / count)


def compound_slowdown(rng: Generator, count: int) -> Floats:
    return _times(rng, count) * np.exp(rng.uniform(0.3, 1.5) * np.arange(count) / count)


SLOWDOWNS: Mapping[str, Quiet] = {"linear slowdown": linear_slowdown, "compound slowdown": compound_slowdown}
