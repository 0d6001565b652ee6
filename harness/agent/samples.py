"""Keeps the samples of a trial in memory that two processes share, which survive the death of the scenario process, and
decides when a measurement is due: a costly one by its share of the time, a look by steps or by seconds in steps.

The memory is a block of float64: a header, then one column after another of `rows` numbers each. It is allocated
completely before the first step, so that sampling retains no memory. Row i was sampled after step (i + 1) * stride.
"""

import json
import mmap
import os
import struct

from . import libc

END, PARK, LOOK = 1, 2, 3

# Positions in the header.
STEPS = 0  # number of steps that are completed (and sampled)
STARTED = 1  # when the step in progress, or the look, began (time.perf_counter); 0 during setup
STOP = 2  # set by the supervisor: END or PARK at the next step boundary; LOOK + step: look after this step; 0: go on
OVERHEAD_S = 3  # seconds spent on measuring between the steps up to the last look
BUSY_S = 4  # seconds spent in those steps
LOST = 5  # set by the scenario process: its connection to the supervisor is broken
WAITING = 6  # when a wait for other ranks began that a hook sees (time.perf_counter); 0 outside of any
OVER = 7  # when a program had made its steps, after which it may end by itself; 0 before
NOT_FINITE = 8  # two numbers per metric: how many steps returned a non-finite value, and the first of them

COLUMNS = (
    "step_s", "rss_kib", "anon_kib", "heap_kib", "blocks", "gpu_pool_kib", "gpu_kib", "gpu_process_kib", "wait_s",
    "first_token_s", "token_s", "failed",
)  # fmt: skip
ALWAYS = 5  # columns that every process has; the others need a GPU, waits for other ranks, or requests to a server
MOST_METRICS = 16
HEADER = NOT_FINITE + 2 * MOST_METRICS
MOST_ROWS = 200000
PAGE = 4096
NAN_PAGE = struct.pack("=d", float("nan")) * (PAGE // 8)


def read_job(root):
    """Return the content of ROOT/job.json."""
    with open(os.path.join(root, "job.json"), encoding="utf-8") as file:
        return json.load(file)


def shape(budget):
    """Return (rows, stride) for a trial of `budget` steps."""
    stride = -(-budget // MOST_ROWS)
    return max(1, budget // stride), stride


def table_bytes(rows):
    """Return the size of the header and all columns. Unused columns are never touched, so they take no memory."""
    numbers = HEADER + rows * (len(COLUMNS) + MOST_METRICS)
    return -(-numbers * 8 // PAGE) * PAGE


def shared_file(name, size):
    """Return the descriptor of a file of `size` zero bytes without a name. Raises OSError."""
    fd = libc.memfd(name)
    if fd is not None:
        os.ftruncate(fd, size)
        return fd
    import tempfile  # few kernels need it, and each launch would wait for it

    for folder in ("/dev/shm", tempfile.gettempdir()):
        try:
            return _unlinked_file(folder, size)
        except OSError as error:
            problem = error
    raise problem


def _unlinked_file(folder, size):
    import tempfile

    fd, path = tempfile.mkstemp(prefix="harness-", dir=folder)
    os.unlink(path)
    try:
        if size:
            os.posix_fallocate(fd, 0, size)  # otherwise a full /dev/shm would cause a SIGBUS in the middle of a trial
    except OSError:
        os.close(fd)
        raise
    return fd


class Table(object):
    """A view of the shared memory. `stride`: number of steps per row."""

    def __init__(self, fd, rows, stride=1):
        self.rows = rows
        self.stride = stride
        self._memory = mmap.mmap(fd, table_bytes(rows))  # fd -1: private to this process
        self._numbers = memoryview(self._memory).cast("d")
        self.header = self._numbers[:HEADER]

    def column(self, index):
        """Return a column as a memoryview of `rows` numbers."""
        start = HEADER + index * self.rows
        return self._numbers[start : start + self.rows]

    def clear(self, first, count):
        """Fill whole columns with NaN, which also makes their pages resident now instead of step by step."""
        start = (HEADER + first * self.rows) * 8
        end = start + count * self.rows * 8
        for place in range(start, end, PAGE):
            until = min(place + PAGE, end)
            self._memory[place:until] = NAN_PAGE[: until - place]

    def taken(self):
        """Return the number of rows sampled so far."""
        return min(self.rows, int(self.header[STEPS]) // self.stride)

    def not_finite(self, metrics):
        """Return name -> (how many steps had NaN or infinity in this metric, the first of them), where any had."""
        places = ((name, NOT_FINITE + 2 * number) for number, name in enumerate(metrics))
        return {name: [int(self.header[at]), int(self.header[at + 1])] for name, at in places if self.header[at]}

    def last(self, index):
        """Return the newest number of a column that is not NaN, or None."""
        column = self.column(index)
        for row in range(self.taken() - 1, max(-1, self.taken() - 1000), -1):
            if column[row] == column[row]:
                return column[row]
        return None

    def largest(self, index):
        """Return the largest number of a column, 0 if there is none."""
        column = self.column(index)
        return max((column[row] for row in range(self.taken()) if column[row] == column[row]), default=0.0)


# ---------------------------------------------------------------- when a measurement is due


class Pace(object):
    """Decides when a measurement is due again: after `period_s`, or later if it would exceed its share of the time.

    The smaller of its last two costs counts, because the other one may have been disturbed.
    """

    def __init__(self, period_s, clock, share):
        self._period_s = period_s
        self._clock = clock
        self._share = share
        self._due = 0.0
        self._last_cost_s = 0.0

    def due(self, now):
        return now >= self._due

    def left_s(self, now):
        """Return the seconds until the measurement is due."""
        return max(0.0, self._due - now)

    def slow_down(self):
        """Halve the rate from now on."""
        self._period_s *= 2

    def spent(self, began):
        """Record that the measurement ran from `began` until now."""
        took_s = self._clock() - began
        cost_s, self._last_cost_s = min(took_s, self._last_cost_s), took_s
        self._due = began + max(self._period_s, cost_s / self._share)


class DueLooks(object):
    """The looks that are still to come. The time of the first step does not count, because it compiles and loads what
    the others use."""

    def __init__(self, job):
        times_s = job.get("look_times_s") or [None] * len(job["looks"])
        times_s = [float("inf") if time_s is None else time_s for time_s in times_s]
        self._left = [(steps, times_s[number]) for number, steps in enumerate(job["looks"])]

    @property
    def step(self):
        """Return the step after which the next look is due at the latest."""
        return self._left[0][0] if self._left else float("inf")

    @property
    def busy_s(self):
        """Return the number of seconds in steps after which the next look is due at the latest."""
        return self._left[0][1] if self._left else float("inf")

    def due(self, step, busy_s):
        """Return whether the next look is due after `step` steps that took `busy_s`."""
        return step >= self.step or busy_s >= self.busy_s

    def take(self, step, busy_s):
        """Drop all looks that are due, because one look serves for them. Return whether none is left."""
        while self._left and self.due(step, busy_s):
            self._left.pop(0)
        return not self._left
