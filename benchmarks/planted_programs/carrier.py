"""The package whose versions differ: each version is built as a wheel, and says whether it has the fault.

`python -m benchmarks.planted` puts `version.py` next to it: `VERSION = "1.2"` and `BAD = True`.
"""

import os
import time

from planted_carrier.version import BAD, VERSION

__all__ = ["BAD", "VERSION", "counted", "own_path", "planted", "spin", "work"]

LOOPS_A_US = 80
"""Turns of an empty loop that take about 1 µs on a machine of 2024. The duration differs from machine to machine, but
the share that a fault adds does not."""


def planted(amount):
    """Return the size of the fault in this version: zero in a good version."""
    return amount if BAD else 0.0


def work(us):
    """Do a fixed amount of work, not of time: like real work, it takes longer on a busy machine."""
    for _ in range(round(us * LOOPS_A_US)):
        pass


def counted(act, us=200):
    """Return a step that does a fixed amount of work and returns `act(number of the step)`."""
    made = 0

    def step():
        nonlocal made
        made += 1
        work(us)
        return act(made)

    return step


def spin(seconds):
    """Use this much processor time in this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def own_path(folder, name):
    """Return a path outside the trial's own folder, which the benchmark removes after the sweep."""
    return os.path.join(folder, "planted-%s-%d-%s" % (os.environ["PLANTED_TOKEN"], os.getpid(), name))
