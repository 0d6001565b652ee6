"""Runs the step loop, which calls the step, times it and samples after it without disturbing the measurement.

Nothing here may retain memory from one step to the next. The overhead is a few µs per step.
"""

import functools
import gc
import numbers
import os
import sys
import time

from .. import samples
from ..probes import gpu_pools, memory, processes
from ..result_names import LARGEST

# A probe may cost this share of the step that it follows, or the floor if that is more. Every verdict on memory needs
# the resident memory, so its floor is high: it is skipped only if it costs ten times the usual.
SHARE = 0.0005
FLOOR_S = {"rss_kib": 20e-6, "heap_kib": 0.5e-6, "blocks": 0.5e-6, "gpu_pool_kib": 0.5e-6}

CALIBRATIONS = 1000
LEAST_S = 1e-9  # lower bound of a step's duration


class CameBack(Exception):
    """A process that the scenario forked returned into the agent, where its steps would count as its parent's."""


class Sampler(object):
    """Samples after each step. `readers`: column -> function that reads it, None if there is nothing to read."""

    def __init__(self, table, readers, tell_metric):
        self.table = table
        self.readers = readers
        self.metrics = Metrics(table, tell_metric)
        self.restart()

    def restart(self):
        """Begin anew, but for the metrics."""
        self.cpu = processes.Meter()  # of the steps after the first
        self.names, self.probes = [], []  # of the columns, and the functions that fill them
        for name, read in self.readers.items():
            if read is not None:
                self.add(name, read)

    def add(self, name, read):
        """Sample another column from the next step on."""
        self.names.append(name)
        column = self.table.column(samples.COLUMNS.index(name))
        is_free = name not in FLOOR_S
        self.probes.append(free_of_cost(read, column) if is_free else cost_limited(read, column, FLOOR_S[name]))

    def make_looker(self):
        """Return what takes the looks. The frameworks' pools are sampled at the steps as well if a pool in use can be
        queried fast."""
        pool = gpu_pools.Pools(sys.modules, gpu_pools.cuda_in_use)
        pool.look()  # so that one-time allocations of the query happen now
        read = pool.step_reader()
        if read is not None and "gpu_pool_kib" not in self.names:
            self.table.clear(samples.COLUMNS.index("gpu_pool_kib"), 1)
            self.add("gpu_pool_kib", read)
        return Looker(self.readers, memory.find_cgroup(), pool, self.cpu)

    def aside(self, look):
        """Take a look, which is not a step; the supervisor sees when the look began, as for a step."""
        self.table.header[samples.STARTED] = time.perf_counter()
        return look()


def readers():
    """Return the readers of this process. Call it before the scenario is imported."""
    resident, anonymous = memory.resident_readers()
    return {
        "rss_kib": resident,
        "anon_kib": anonymous,  # of the pages that the one before has just read
        "heap_kib": memory.heap_reader(processes.foreign_allocator()),
        "blocks": getattr(sys, "getallocatedblocks", None),  # of Python's allocator: no native memory
    }


class Stepper(object):
    """Makes steps and fills rows. `steps` is the number of steps made, `busy_s` the seconds spent in them."""

    def __init__(self, step, sampler):
        self.steps = 0
        self.busy_s = 0.0
        self._step = step
        self._sampler = sampler
        self._row_busy_s = 0.0
        self._forked = []  # filled in a process that was forked
        if hasattr(os, "register_at_fork"):  # Python 3.7
            os.register_at_fork(after_in_child=functools.partial(self._forked.append, True))
        self._clock_s = clock_cost_s()

    def run(self, start, stop, most_s=float("inf")):
        """Make the steps from start to stop (0-based), or fewer if they take `most_s` or the supervisor ends them."""
        cpu, header = self._sampler.cpu, self._sampler.table.header
        cpu.resume()
        began = time.perf_counter()
        busy_s = self._loop(start, stop, most_s)
        overhead_s = time.perf_counter() - began - busy_s
        if start:
            cpu.pause(overhead_s / (busy_s + overhead_s))
        header[samples.OVERHEAD_S] += overhead_s
        header[samples.BUSY_S] += busy_s
        self.busy_s += busy_s

    def _loop(self, start, stop, most_s):
        table = self._sampler.table
        header, step_s, stride = table.header, table.column(0), table.stride
        step, probes, metrics, clock = self._step, self._sampler.probes, self._sampler.metrics, time.perf_counter
        forked, clock_s = self._forked, self._clock_s
        last_row, row, row_busy_s, busy_s = table.rows - 1, start // stride, self._row_busy_s, 0.0
        row_end = (row + 1) * stride
        for number in range(start + 1, stop + 1):
            header[samples.STARTED] = started = clock()
            result = step()
            took_s = clock() - started - clock_s
            if took_s < LEAST_S:  # noqa: PLR1730 (a call of max takes as long as some steps)
                took_s = LEAST_S
            if forked:
                raise CameBack()
            busy_s += took_s
            row_busy_s += took_s
            if result is not None:
                metrics.record(row, number, result)
                result = None  # do not keep the scenario's objects alive into the next step
            if number == row_end and row <= last_row:
                step_s[row] = row_busy_s / stride
                for probe in probes:
                    probe(row, row_busy_s)
                row_busy_s = 0.0
                row += 1
                row_end += stride
            header[samples.STEPS] = number
            if header[samples.STOP] or busy_s >= most_s:
                break
        self.steps = int(header[samples.STEPS])
        self._row_busy_s = row_busy_s
        return busy_s


def clock_cost_s():
    """Return the seconds between two readings of the clock: about 0.1 us, which matters for a step of 0.3 us."""
    clock = time.perf_counter
    header, least_s = memoryview(bytearray(8)).cast("d"), 1.0
    for _ in range(CALIBRATIONS):
        header[0] = started = clock()
        took_s = clock() - started
        least_s = min(least_s, took_s)
    return least_s


def free_of_cost(read, column):
    """Return a probe of what another one has read: to time it would take longer."""

    def probe(row, busy_s):
        column[row] = read()

    return probe


def cost_limited(read, column, floor_s, clock=time.perf_counter):
    """Return a probe that limits its own cost: after each sample, it pauses until its share of the later steps equals
    the cost of the sample.

    The smaller of the last two costs counts, so that one interruption does not pause it for long.
    """
    due, last_cost_s = 0.0, 0.0

    def probe(row, busy_s):
        nonlocal due, last_cost_s
        if row < due:
            return
        started = clock()
        column[row] = read()
        cost_s = clock() - started
        allowed_s = SHARE * busy_s
        # Calls of min and max would take as long as the rest.
        due = row + (cost_s if cost_s < last_cost_s else last_cost_s) / (allowed_s if allowed_s > floor_s else floor_s)
        last_cost_s = cost_s

    return probe


def as_float(number):
    """Return a float; NaN for a number that no float can hold, because a returned value must not fail the step."""
    try:
        return float(number)
    except OverflowError:
        return float("nan")


class Metrics(object):
    """The scenario's own numbers: `step` returns them as a dict, or as one number, called `items`.

    Values that are not finite or exceed LARGEST are counted in the table's header, which survives a crash.
    """

    def __init__(self, table, tell=None):
        """Call `tell(name)` when a result has a number under a new name, which has a column from then on."""
        self.names = []  # in the order of their columns, of which there are at most MOST_METRICS
        self._table = table
        self._tell = tell or (lambda name: None)
        self._columns = []
        self._known = {*samples.COLUMNS, "step"}  # and the metrics' own names

    def record(self, row, number, result):
        """Record the result of step `number`, which belongs to `row`."""
        if not isinstance(result, dict):
            if not isinstance(result, numbers.Real):
                return
            result = {"items": result}
        if len(self.names) < samples.MOST_METRICS and not self._known.issuperset(result):
            self._learn(result)
        for place, (name, column) in enumerate(self._columns):
            value = result.get(name)
            if isinstance(value, numbers.Real):
                value = as_float(value)
                if not -LARGEST <= value <= LARGEST:
                    self._note(samples.NOT_FINITE + 2 * place, number)
                if row < self._table.rows:
                    column[row] = value

    def fold(self, steps, newest=None):
        """Move what was recorded after the last of `steps` steps to the row of that step. `newest`: the place of the
        last line that is a step, if that is another one: its values are moved where the last step has none."""
        last, is_later = steps // self._table.stride - 1, newest not in (None, steps)
        row = (newest - 1) // self._table.stride if is_later else last + 1
        for _, column in self._columns if 0 <= last < row < self._table.rows else ():
            if column[row] == column[row] and not (is_later and column[last] == column[last]):
                column[last] = column[row]

    def _note(self, place, number):
        header = self._table.header
        if not header[place]:
            header[place + 1] = number
        header[place] += 1

    def _learn(self, result):
        """Add a column for each name that has none, and that the agent does not use itself."""
        added = [name for name in result if isinstance(name, str) and name not in self._known]
        for name in added[: samples.MOST_METRICS - len(self.names)]:
            place = len(samples.COLUMNS) + len(self.names)
            self._table.clear(place, 1)
            self._columns.append((name, self._table.column(place)))
            self._known.add(name)
            self.names.append(name)
            self._tell(name)


# ---------------------------------------------------------------- looks


class Looker(object):
    """Takes looks with the available readers. What cannot be read is missing in a look."""

    def __init__(self, readers, cgroup, pool, cpu):
        names = ("rss%s_kib", "rss_kib"), ("heap%s_kib", "heap_kib"), ("blocks%s", "blocks")
        self._readers = [(name, readers[column]) for name, column in names]
        self._cgroup = cgroup
        self._pool = pool
        self._cpu = cpu

    def look(self):
        """Return the fields of model.Look, except its step."""
        fields = self._sample("_before")
        gc.collect()
        fields.update(self._sample(""))
        fields.update(memory.read_status())
        fields.update(self._pool.look())
        fields["cpu_s"] = self._cpu.spent_s
        fields.update(self._cpu.moved or {})
        fields["cgroup_kib"] = self._cgroup.usage_kib()
        return fields

    def last_look(self):
        """Return the same, with a second sample after the allocator has released free memory, which could disturb later
        steps."""
        fields = self.look()
        if memory.trim():
            fields.update(self._sample("_trimmed", until=2))
        return fields

    def _sample(self, suffix, until=3):
        return {name % suffix: read() for name, read in self._readers[:until] if read is not None}
