"""The package whose versions differ: it is built as a wheel in each version, and says whether it has the fault.

`python -m benchmarks.planted` puts `version.py` beside it: `VERSION = "1.2"` and `BAD = True`.
"""

import os
import time

from planted_carrier.version import BAD, VERSION

__all__ = ["BAD", "VERSION", "counted", "own_path", "planted", "spin", "work"]

LOOPS_A_US = 80
"""So many turns of an empty loop take about 1 µs on a machine of 2024: the base differs from machine to machine, the
share that a fault adds does not."""


def planted(amount):
    """The size of the fault in this version: none in a good one."""
    return amount if BAD else 0.0


def work(us):
    """A fixed amount of work, not of time: it is slowed down by what slows the machine down, as real work is."""
    for _ in range(round(us * LOOPS_A_US)):
        pass


def counted(act, us=200):
    """A step of so much work that returns `act(number of the step)`."""
    made = 0

    def step():
        nonlocal made
        made += 1
        work(us)
        return act(made)

    return step


def spin(seconds):
    """Take so much processor time of this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def own_path(folder, name):
    """A path outside of the trial's own folder, which the benchmark removes after the sweep."""
    return os.path.join(folder, "planted-%s-%d-%s" % (os.environ["PLANTED_TOKEN"], os.getpid(), name))
