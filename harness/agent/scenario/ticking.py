"""Times the steps of an unmodified program: the hooks (hooks/) call `mark` after each, and the time between two marks
is the step. What the agent does at a mark is not counted.

Nothing here may retain memory from one step to the next. The overhead is a few µs per step.
"""

import os
import threading
import time

from .. import samples
from ..probes import processes
from . import stepping
from .printed import spent

ASKS_PID = not hasattr(os, "register_at_fork")  # Python 3.6, where each step asks whether the process was forked


class Ended(BaseException):
    """Ends the program between two steps. It is not an Exception, so that `except Exception` does not catch it."""


class Ticker(object):
    """Fills the rows of a program's steps. `steps` is the number of steps made, `paused_s` the time of all looks.

    `join(kind)` is called before the first step of this process, and of each process that it forked; it calls `fill`
    and returns whether the steps count. `begin(ticker)` is called after the first step. `look(ticker)` is called when a
    look is due or the supervisor requests an end; it returns whether the program goes on. It sets `is_over` after the
    last step, and is then called once more if the program goes on to another step: until then the program may end by
    itself. `leave()` ends the process.
    """

    def __init__(self, join, begin, look, leave):
        self.steps = 0
        self.kind = None  # the hook whose calls are the steps: the first that marked
        self.ended = False
        self._join, self._begin, self._look, self._leave = join, begin, look, leave
        self._owner = 0  # the process whose steps are counted; 0: none yet
        self._is_elsewhere = True  # this process is another one
        if not ASKS_PID:
            os.register_at_fork(after_in_child=self._note_fork)
        self._outside = 0  # the process whose steps do not count

    def fill(self, table, readers, due_looks, tell_metric):
        """Fill `table` from now on, after the steps that another process may have made in it."""
        self.sampler = stepping.Sampler(table, readers, tell_metric)
        self.steps, self.busy_s = int(table.header[samples.STEPS]), 0.0
        self._table, self._probes = table, self.sampler.probes
        self._row_busy_s, self._clock_s = 0.0, stepping.clock_cost_s()
        self.kind, self.is_over, self.ended = None, False, False
        self._due_looks = due_looks
        self._owner, self._thread, self._is_elsewhere = os.getpid(), None, ASKS_PID
        self._has_begun = self._has_looked = False
        self._look_step, self._look_s = 1, float("inf")
        self._since = self._waiting_s = 0.0
        self._waits = 0  # how many waits are going on, one inside the other
        self._step_s, self._wait_s = table.column(0), None
        self._overhead_s = self._busy_before_s = self.paused_s = self._read_s = 0.0

    def mark(self, kind, count=1):
        """Count `count` steps of the hook `kind` that end together. Raises Ended if the program must end."""
        now = time.perf_counter()
        if self._is_elsewhere and not self._arrive(kind):  # a call of os.getpid takes 0.3 us
            return
        if self._thread is None:
            self.kind, self._thread = kind, threading.get_ident()
        elif kind != self.kind and self.kind == "line" and not self._has_looked:
            self._restart(kind)  # lines came before the framework's first step, such as those of a download
        elif kind != self.kind or threading.get_ident() != self._thread:
            return
        if self.is_over:
            self._end()
        header, before_s, self._read_s = self._table.header, self._read_s, spent.reading_s
        if not self._has_begun:  # the first step has no duration, because its start is unknown
            self._has_begun = True
            self.steps += max(1, min(count, self._due_looks.step - 1 - self.steps))
            header[samples.STEPS] = self.steps
            self._pause(self._begin)
        else:
            took_s = now - self._since - self._clock_s - (self._read_s - before_s)
            if took_s < stepping.LEAST_S:  # noqa: PLR1730 (a call of max takes longer)
                took_s = stepping.LEAST_S
            self._overhead_s += self._read_s - before_s
            if count == 1:
                self._made(took_s)
            else:
                for _ in range(count):
                    self._made(took_s / count)
        header[samples.STARTED] = self._since = ended = time.perf_counter()
        self._overhead_s += ended - now

    def _arrive(self, kind):
        """Return whether the steps of this process, which has made none yet, count."""
        own = os.getpid()
        if own not in (self._owner, self._outside) and not self._join(kind):
            self._outside = own
        return self._owner == own

    def _note_fork(self):
        self._is_elsewhere = True

    def _made(self, took_s):
        """Count a step and fill its row, and do what is due after it. What is left of a bar after the last one is
        dropped."""
        if self.is_over:
            return
        self.steps = number = self.steps + 1
        self.busy_s += took_s
        self._row_busy_s = row_busy_s = self._row_busy_s + took_s
        table = self._table
        header, stride = table.header, table.stride
        if not number % stride and number <= table.rows * stride:
            row = number // stride - 1
            self._step_s[row] = row_busy_s / stride
            if self._waiting_s:
                self._record_waits(row)
            for probe in self._probes:
                probe(row, row_busy_s)
            self._row_busy_s = 0.0
        header[samples.STEPS] = number
        if number >= self._look_step or self.busy_s >= self._look_s or header[samples.STOP]:
            self._has_looked = True
            self._pause(self._look)

    def _record_waits(self, row):
        if self._wait_s is None:
            place = samples.COLUMNS.index("wait_s")
            self._table.clear(place, 1)
            self._wait_s = self._table.column(place)
        self._wait_s[row], self._waiting_s = self._waiting_s / self._table.stride, 0.0

    def waiting(self, call, computes=False):
        """Return what `call()` returns; its time is a wait for other ranks. `computes`: but for its processor time."""
        if (self._is_elsewhere and self._owner != os.getpid()) or self._thread != threading.get_ident():
            return call()
        header, began, cpu_s = self._table.header, time.perf_counter(), processes.thread_s() if computes else 0.0
        self._waits += 1
        if self._waits == 1:
            header[samples.WAITING] = began
        try:
            return call()
        finally:
            self._waits -= 1
            if not self._waits:
                header[samples.WAITING] = 0
                cpu_s = processes.thread_s() - cpu_s if computes else 0.0
                self._waiting_s += max(0.0, time.perf_counter() - began - cpu_s)

    def _restart(self, kind):
        """Forget the steps that lines made: those of the framework `kind` count."""
        self.kind, self._thread, self.steps, self._has_begun = kind, threading.get_ident(), 0, False
        self.busy_s = self._row_busy_s = self._overhead_s = self._busy_before_s = 0.0
        header = self._table.header
        for place in (samples.STEPS, samples.OVERHEAD_S, samples.BUSY_S, *range(samples.NOT_FINITE, samples.HEADER)):
            header[place] = 0
        self._table.clear(0, samples.ALWAYS)
        self._table.clear(len(samples.COLUMNS), len(self.sampler.metrics.names))
        self.sampler.restart()
        self.sampler.cpu.resume()
        self._probes = self.sampler.probes

    def _pause(self, act):
        """Do what is due between this step and the next. This time is neither the program's nor overhead."""
        began = time.perf_counter()
        self.settle()
        if act(self) is False:
            self._end()
        if not self.is_over:
            self._look_step, self._look_s = self._due_looks.step, self._due_looks.busy_s
            self.sampler.cpu.resume()
        paused_s = time.perf_counter() - began
        self.paused_s += paused_s
        self._overhead_s = -paused_s  # `mark` adds the whole pause

    def _end(self):
        """End the program, which has made its steps and goes on to another. Raises Ended, but only once."""
        if self.ended:
            self._leave()
        if self.is_over:
            self._look(self)
        self.ended = True
        raise Ended("the trial has its steps")

    def take_whole(self, overhead):
        """Make the whole run, of which no step was seen, or one line, the one step: fill its row, whose duration stays
        unknown. `overhead` is the agent's share of its time."""
        self.kind, self.sampler.cpu = None, processes.Meter()  # of the whole run, and not since that line
        for probe in self._probes:
            probe(0, 0.0)
        self.steps, self._has_begun = 1, True
        self._table.header[samples.STEPS] = 1
        self._table.header[samples.STARTED] = time.perf_counter()
        self.sampler.cpu.pause(overhead)

    def settle(self):
        """Add up the processor time and the agent's overhead of the steps since the last pause."""
        busy_s = self.busy_s - self._busy_before_s
        if busy_s > 0:
            self.sampler.cpu.pause(self._overhead_s / (busy_s + self._overhead_s))
        self._table.header[samples.OVERHEAD_S] += self._overhead_s
        self._table.header[samples.BUSY_S] = self.busy_s
        self._overhead_s, self._busy_before_s = 0.0, self.busy_s
