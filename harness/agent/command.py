"""A command as scenario: any program, sampled from outside over its process tree.

A row is taken at each line of its output that matches `step_pattern`, or every BEAT_S without a pattern. It is not
held up while the harness thinks about a look; what it does meanwhile is not counted.
"""

import os
import re

from . import ending, samples, wire, wrapping
from .probes import tree
from .watch import Watch

BEAT_S = 0.1
STEP_S, RSS_KIB = 0, 1


class CommandWatch(Watch):
    """Watches a command; the table is the supervisor's own."""

    def __init__(self, job, root, outbox, gpus):
        Watch.__init__(self, job, root, outbox, gpus)
        self.measure_in(samples.Table(-1, self.rows, self.stride))
        self.table.clear(STEP_S, 2)
        self.columns = {"step_s": STEP_S, "rss_kib": RSS_KIB}
        self._pattern = re.compile(job["step_pattern"].encode("utf-8")) if job["step_pattern"] else None
        self._lines = wire.Lines(ends=b"\n\r")  # progress bars end their lines with a carriage return
        self._looks = list(job["looks"])
        self._opened_at = self._last_at = self._next_at = self.clock()

    def open(self):
        try:
            self.start(self.job["command"])
        except wrapping.Missing as error:
            self.end("setup", str(error))
        except OSError as error:
            self.end("setup", "cannot start %s: %s" % (self.job["command"][0], os.strerror(error.errno)))

    # -------------------------------------------------------------- rows

    def printed(self, data):
        if self._pattern is not None:
            for line in self._lines.feed(data):
                if self._pattern.search(line):
                    self._step(self.clock())

    def beat_s(self):
        return BEAT_S

    def tick(self, now):
        if self._pattern is None and now >= self._next_at:
            self._next_at = max(self._next_at + BEAT_S, now)
            self._step(now)

    def _step(self, now):
        """One step more: a row at every stride-th, and perhaps a look."""
        took_s, self._last_at = now - self._last_at, now
        if self.asked_at is not None or self.done is not None or self.steps() == self.job["looks"][-1]:
            return  # what it does while the harness thinks, or beyond the budget, is not counted
        number = self.steps() + 1
        row, rest = divmod(number, self.stride)
        if not rest and row <= self.rows:
            self._sample(row - 1, took_s)
        self.table.header[samples.STEPS] = number
        self.table.header[samples.STARTED] = now
        if number == 1:
            self.ready(None, now - self._opened_at, ["rss"])
        if number == self._looks[0] and self.child.death is None:
            self._take_look(last=len(self._looks) == 1)

    def _sample(self, row, took_s):
        if self._pattern is not None:
            self.table.column(STEP_S)[row] = took_s
        resident_kib = self.resident()
        if resident_kib:  # nothing: it ended while we looked
            self.table.column(RSS_KIB)[row] = resident_kib

    def _take_look(self, last):
        self._looks.pop(0)
        self.look(self.steps(), {"rss_kib": self.resident()}, last)
        if last:
            self.end("completed", "")

    # -------------------------------------------------------------- what happens to it

    def answered(self, answer):
        self.table.header[samples.STARTED] = self._last_at = self._next_at = self.clock()
        if answer == "stop":
            self.look(self.steps(), {"rss_kib": self.resident()}, last=True)
            self.end("stopped", "")

    def died(self, death):
        if self.job["judge_exit"]:
            verdict = ending.of_judged_command(death, self.oom_killed())
        else:
            verdict = ending.of_command(death, self.steps(), self.job["step_pattern"], self.oom_killed())
        self.end(*verdict, death=death)

    def overdue(self, now):
        limit_s = self.job["timeout_s"]
        if self.job["judge_exit"]:
            self.end("hang", "the command did not end in %g s" % limit_s)
        elif not self.steps():
            self.end("setup", "no step was made in %g s" % limit_s)
        elif self._pattern is not None and self.stuck(now):
            self.end("hang", "no progress after step %d at the time limit of %g s" % (self.steps(), limit_s))
        else:
            self.end("stopped", "time limit reached after %d steps" % self.steps())

    def resident(self):
        return tree.rss_kib(tree.descendants(os.getpid()))
