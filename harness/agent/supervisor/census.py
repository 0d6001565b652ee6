"""Counts what a trial holds besides memory, at intervals and from outside, so that it does not slow the steps down.

A row is taken after the first step, at every look (where it is exact, because the scenario stands still), when the
trial ends, and between looks every 50 ms, or less often if that would take more than 1 % of the time. Files are counted
at a separate pace, because that means walking through folders. At most MOST_PACED rows between looks are kept: beyond
that, every second one is dropped, and from then on rows are taken half as often.
"""

import time

from .. import wire
from ..probes import processes
from ..samples import Pace

COUNTED = (*processes.COUNTED, "shm", "disk", "worker_memory", "worker_memory_kept")
PERIOD_S = 0.05
SHARE = 0.005  # of the time, for each of the two paces
MOST_PACED = 256
MOST_OVER_TIME = 512


class Census(object):
    """Counts what the tree of process `pid` holds, and the files in `places`. `steps()` returns the steps so far.

    `workers` counts the memory of its descendants; None for a command, whose samples include that of all its processes.
    """

    def __init__(self, pid, places, steps, workers=None, clock=time.perf_counter):
        self.pid = pid
        self._places = places
        self._workers = workers
        self._steps = steps
        self._clock = clock
        self._pace, self._files_pace = Pace(PERIOD_S, clock, SHARE), Pace(PERIOD_S, clock, SHARE)
        self._rows = []  # (step, counts, whether it is never dropped)
        self._is_new = False

    def beat_s(self, now, otherwise_s):
        """Return the maximum number of seconds until `tick` should be called."""
        return min(self._pace.left_s(now), otherwise_s) if self._rows else otherwise_s

    def restart(self):
        """Count after the first step. What was counted before is dropped: another step was taken for the first."""
        self._rows = []
        self.look()

    def look(self):
        """Count at a look."""
        self._take(self._steps(), with_files=True, kept=True)

    def tick(self, now):
        """Count if a count is due and steps were made since the last one."""
        if not self._rows or not self._pace.due(now):
            return
        step = self._steps()
        if step > self._rows[-1][0]:
            self._take(step, with_files=self._files_pace.due(now), kept=False)
            self._thin()
        self._pace.spent(now)

    def end(self):
        """Count once more if steps were made since the last count: a process that has ended holds nothing."""
        step = self._steps()
        if self._rows and step > self._rows[-1][0]:
            self._take(step, with_files=True, kept=True)

    def left_kib(self):
        """Return what a program that went on after its steps leaves on the disk; None if that cannot be counted."""
        return self._places.count().get("disk")

    def columns(self):
        """Return all rows so far as columns; {} if no row was taken since the last call."""
        if not self._is_new:
            return {}
        self._is_new = False
        columns = {name: [wire.json_number(counts.get(name)) for _, counts, _ in self._rows] for name in COUNTED}
        columns["step"] = [step for step, _, _ in self._rows]
        return columns

    def _take(self, step, with_files, kept):
        counts = processes.count_held(self.pid)
        if counts is None:
            return  # the process has ended
        if self._workers is not None and "workers" in counts:
            counts.update(self._workers.count(counts["workers"]))
        if with_files:
            began = self._clock()
            counts.update(self._places.count())
            self._files_pace.spent(began)
        while self._rows and self._rows[-1][0] >= step:  # a new lead may be behind the rank that ended
            self._rows.pop()
        self._rows.append((step, counts, kept))
        self._is_new = True

    def _thin(self):
        paced = [row for row in self._rows if not row[2]]
        if len(paced) > MOST_PACED:
            gone = {row[0] for row in paced[::2]}
            self._rows = [row for row in self._rows if row[2] or row[0] not in gone]
            self._pace.slow_down()


class MemoryOverTime(object):
    """Samples the memory of all processes of a program or a command at even distances in time, whatever its steps are.
    At most MOST_OVER_TIME rows are kept, as by a census."""

    def __init__(self, clock=time.perf_counter):
        self._pace = Pace(PERIOD_S, clock, SHARE)
        self.columns = {"at_s": [], "rss_kib": [], "anon_kib": []}

    def beat_s(self, now, otherwise_s):
        """Return the maximum number of seconds until `tick` should be called."""
        return min(self._pace.left_s(now), otherwise_s)

    def tick(self, now, at_s):
        """Take a row if one is due, `at_s` seconds after the start, without those in which the program had to wait."""
        if not self._pace.due(now):
            return
        resident_kib, anonymous_kib = processes.memory_kib(processes.descendants())
        if resident_kib:
            self.columns["at_s"].append(at_s)
            self.columns["rss_kib"].append(resident_kib)
            self.columns["anon_kib"].append(anonymous_kib)
        if len(self.columns["at_s"]) > MOST_OVER_TIME:
            for column in self.columns.values():
                del column[::2]
            self._pace.slow_down()
        self._pace.spent(now)
