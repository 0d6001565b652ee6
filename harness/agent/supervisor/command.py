"""Measures a command, which may be any program, from outside: it samples the whole process tree.

A row is taken at each line of output that matches `step_pattern`. Without a pattern, a row is taken every BEAT_S and is
a sample, not a step. Lines that come in one read share the time since the previous read. The command goes on while the
harness judges a look; what it does meanwhile is not counted.
"""

import os
import re

from .. import ending, samples, wire
from ..probes import memory, processes
from ..scenario import printed, result_file, stepping

BEAT_S = 0.1
STEP_S, RSS_KIB, ANON_KIB = 0, 1, 2
SUMMED = ("rss_anon_kib", "rss_file_kib", "rss_shmem_kib", "swap_kib")
MOST_READ = 2000  # lines of one read in which numbers are looked for


class Outside(object):
    """Measures a process tree from outside. `table`, `_cpu_before_s` and `_moved_before`, the processor
    seconds and the bytes read and written up to the first step, are its subclass's."""

    def _start(self, command):
        """Start what is measured. Raises Missing."""
        os.environ.setdefault("PYTHONUNBUFFERED", "1")  # otherwise the lines of all its steps may arrive at the end
        try:
            self._job.start(command)
        except OSError as error:
            raise ending.Missing("cannot start %s: %s" % (command[0], os.strerror(error.errno)))

    def leave(self):
        self._job.end("stopped", "")

    def stepping_pid(self):
        return self._job.child.pid

    def resident_kib(self):
        return self._memory_kib()[0]

    def _memory_kib(self):
        return processes.memory_kib(processes.descendants())

    def _fields(self):
        """Return the fields of a look. If the command has ended, its memory is that of the last row.

        The peak is the larger of the kernel's peak of the largest process and the largest row: the peak of the sum
        between rows is unknown.
        """
        pids = processes.descendants()
        statuses = [memory.read_status("/proc/%d/status" % pid) for pid in pids]
        moved = processes.moved_since(self._moved_before, pids, self._job.child.moved)
        peaks_kib = [fields.get("rss_peak_kib", 0) for fields in statuses]
        sums_kib = {
            name: sum(fields[name] for fields in statuses if name in fields) for name in SUMMED if any(statuses)
        }
        return {
            **sums_kib,
            "rss_kib": self.resident_kib() or self.table.last(RSS_KIB),
            "rss_peak_kib": max([*peaks_kib, self._job.peak_rss_kib() or 0]) or None,
            "cpu_s": processes.children_s() - self._cpu_before_s,
            **(moved or {}),
        }

    def _said(self):
        """Return the last line of the command's output that is not a step."""
        pattern = self._job.order["step_pattern"]
        return ending.last_words(self._job.output.tail(), re.compile(pattern) if pattern else None)


class Command(Outside):
    """The subject of a job that is a command: it fills the table itself."""

    beat_s = BEAT_S

    def __init__(self, job):
        self._job, self._budget, pattern = job, job.order["looks"][-1], job.order["step_pattern"]
        self._judges_exit, self._timeout_s = job.order["judge_exit"], job.order["timeout_s"]
        job.workers = None  # their memory is in the samples
        self.table = samples.Table(-1, job.rows, job.stride)
        self.table.clear(STEP_S, 3)
        self.columns = {"step_s": STEP_S, "rss_kib": RSS_KIB, "anon_kib": ANON_KIB}
        self._pattern = re.compile(pattern.encode("utf-8")) if pattern else None
        self._lines = wire.Lines()
        self._metrics = stepping.Metrics(self.table, self._tell_metric)
        but = job.in_place and job.in_place["varied"]
        asked, is_whole = job.order["printed"], self._pattern is None
        self._reader = None if asked == {} else printed.reader(asked, None, but=but, measures=is_whole)
        self._results = job.order.get("results") and os.path.join(job.folder(), job.order["results"])
        self._results_before = self._results and result_file.state(self._results)
        self._unread = ""  # why that file gave no numbers
        self._seen = 0  # lines that are steps; those that come while a look is judged are no rows, but have a place
        self._due_looks = samples.DueLooks(job.order)
        self._busy_s = 0.0
        self._opened_at = self._last_at = self._next_at = self._heard_at = job.clock()
        self._bursts = Bursts()
        self._cpu_before_s, self._moved_before = 0.0, {}
        self._kept_before_s = processes.kept_waiting_s()
        self._parks = bool(job.order.get("slices"))  # at the next line that is a step
        self._held = 0  # steps whose lines came while it was parked
        self._is_partial = False  # the next step began in an earlier slice

    def open(self):
        self._start(self._job.order["command"])
        self._opened_at = self._last_at = self._next_at = self._heard_at = self._job.clock()

    # -------------------------------------------------------------- rows

    def printed(self, data):
        if self._pattern is None and self._reader is None:
            return
        count, read = 0, 0
        for line in self._lines.feed(data.replace(b"\r", b"\n")):  # progress bars end lines with a carriage return
            if self._pattern is not None and self._pattern.search(line):
                count += 1
                self._seen += 1
            if self._reader is not None and read < MOST_READ:
                read += 1
                self._read(line)
        if self._job.is_parked:  # made before it stood still
            self._held += count
        elif count:
            self._steps_came(count, self._job.clock())
            if self._parks and self._counts():
                self._parks = False
                self._job.park()

    def park_soon(self):
        self._parks = True

    def set_stop(self, value):
        """Do nothing: a command cannot be asked to stop."""

    def refresh(self, is_whole=False):
        """Do nothing: each row is complete when it is taken."""

    def drain(self):
        """Do nothing: a command tells nothing but what it prints."""

    def _read(self, line):
        """Record the numbers of a line: those of a step's own line, or of a line after it, belong to this step."""
        values = self._reader.values(line[: printed.LONGEST].decode("utf-8", "replace"))
        self._reader.note(self._seen, values)
        self._record(values)

    def _read_results(self):
        """Return the numbers of the file of results."""
        try:
            return result_file.read(self._results, self._results_before)
        except ValueError as error:
            self._unread = "results: %s: %s" % (self._job.order["results"], error)
            self._job.notes.append(self._unread)
            return {}

    def _record(self, values):
        number = max(1, self._seen if self._pattern is not None else self._steps)
        if values and number <= self._budget:
            self._metrics.record((number - 1) // self._job.stride, number, values)

    @property
    def _steps(self):
        return int(self.table.header[samples.STEPS])

    def _tell_metric(self, name):
        self.columns[name] = len(samples.COLUMNS) + len(self._metrics.names) - 1

    def tick(self, now):
        if self._pattern is None and now >= self._next_at:
            self._next_at = max(self._next_at + BEAT_S, now)
            if self._counts():
                self._step(now, now - self._last_at, self._memory_kib())
            self._last_at = now
        self._kept_before_s = processes.kept_waiting_s()

    def catch_up(self):
        """Record the steps whose lines came while it was parked, and return their number. They have no time, nor has
        the step that goes on."""
        self._is_partial = True
        held, self._held = self._held, 0
        memory_kib = self._memory_kib() if held else (0, 0)
        for _ in range(held):
            if self._counts():
                self._step(self._job.clock(), 0.0, memory_kib)
        return held

    def _steps_came(self, count, now):
        """Record `count` steps that arrived in one read."""
        kept_s = processes.kept_waiting_s() - self._kept_before_s
        if self._counts():
            took_s, memory_kib, before = now - self._last_at, self._memory_kib(), self._steps
            for _ in range(count):
                if self._counts():
                    self._step(now, took_s / count, memory_kib, together=count > 1)
                    self._is_partial = False
            self._bursts.came(self._steps - before, took_s, now - self._heard_at, kept_s)
        self._last_at, self._heard_at = now, self._job.clock()

    def _counts(self):
        """Return whether a step counts: not while the harness judges a look, and not beyond the budget."""
        return self._job.asked_at is None and self._job.done is None and self._steps < self._budget

    def _step(self, now, took_s, memory_kib, together=False):
        """Record one more step: a row at every stride-th step, and a look if one is due.

        Processor time counts from the first step on, or from the start if the first step came together with others.
        """
        number = self._steps + 1
        row, rest = divmod(number, self._job.stride)
        if not rest and row <= self._job.rows:
            self._sample(row - 1, took_s, memory_kib)
        self.table.header[samples.STEPS] = number
        self.table.header[samples.STARTED] = now
        if number == 1:
            if not together:
                self._cpu_before_s = processes.children_s()
                self._moved_before = processes.moved_since({}, processes.descendants(), {})
            self._job.ready(None, now - self._opened_at, ["rss"])
            if self._pattern is not None and self._reader is not None:
                self._reader.begin()
        else:
            self._busy_s += took_s
        if self._job.child.death is None and self._due_looks.due(number, self._busy_s):
            last = self._due_looks.take(number, self._busy_s)
            self._job.look(self._steps, self._fields(), last)
            if last:
                self._job.end("completed", "")

    def _sample(self, row, took_s, memory_kib):
        if self._pattern is not None and not self._is_partial:
            self.table.column(STEP_S)[row] = took_s
        if memory_kib[0]:  # 0: the command has just ended
            self.table.column(RSS_KIB)[row], self.table.column(ANON_KIB)[row] = memory_kib

    # -------------------------------------------------------------- events

    def answered(self, answer):
        self.table.header[samples.STARTED] = self._last_at = self._next_at = self._job.clock()
        if answer == "stop":
            self._job.look(self._steps, self._fields(), last=True)
            self._job.end("stopped", "")

    def died(self, death):
        said = self._said()
        if self._job.is_parked:
            self._job.is_parked, self._job.asked_at = False, None
            self.catch_up()
        if self._judges_exit:
            end, message = ending.of_judged_command(death, self._job.oom.killed(), said)
        else:
            pattern = self._job.order["step_pattern"]
            end, message = ending.of_command(death, self._steps, pattern, self._job.oom.killed(), said)
            self._job.shortfall = "no_step" if end == "setup" and death.exit_code == 0 else ""
            if end == "completed":
                self._job.run_s = self._job.clock() - self._opened_at
                self._job.end_s = (
                    self._job.clock() - self._last_at if self._pattern is not None and self._steps else None
                )
                if not self._steps:  # it ended before the first sample
                    self._step(self._job.clock(), self._job.run_s, (0, 0), together=True)
                if self._reader is not None:
                    self._record(self._reader.rest())
                if self._results:
                    self._record(self._read_results())
                self._metrics.fold(self._steps, self._seen or None)
                if self._counts():
                    self._job.look(self._steps, self._fields(), last=True)
        self._job.end(end, message, death=death)

    def overdue(self, now):
        limit_s = self._timeout_s
        if self._judges_exit:
            self._job.end("hang", "the command did not end in %g s" % limit_s)
        elif not self._steps:
            self._job.shortfall = "no_step"
            self._job.end("setup", ending.placed("no step was seen in %g s" % limit_s, self._said()))
        elif self._pattern is not None and self._job.is_stuck(now):
            self._job.end("hang", "after step %d: no progress at the time limit of %g s" % (self._steps, limit_s))
        else:
            self._job.shortfall = "timeout"
            rows = "steps" if self._pattern else "samples"
            self._job.end("stopped", "time limit reached after %d %s" % (self._steps, rows))

    def about(self):
        not_finite = self.table.not_finite(self._metrics.names)
        return {"not_finite": not_finite, "buffered": self._bursts.words(), "unread": self._unread}


# ---------------------------------------------------------------- steps or a buffer's bursts
#
# A step is known only by the time at which its line arrives. If a program writes each line immediately, its lines
# arrive one by one; several arrive together only if the supervisor was busy with earlier ones, and then without a wait.
# If the supervisor waits and then several lines arrive together, they were held back: that is a burst. Lines that may
# have come one by one while other processes kept the supervisor from reading count as neither. Rows do not count as
# steps if more than half of the steps came in bursts, or if the first step took more than nine tenths of the whole
# time, and most of the steps came together in few reads: they were written line by line, but all at the end. A program
# that takes that long to start and then makes steps of a few microseconds looks the same: its steps cannot be timed
# either.


WAIT_S = 0.01  # longer than the supervisor's other work keeps it from reading
FIRST_SHARE = 0.9


class Bursts(object):
    """Notes when the lines of the steps arrive, to detect lines that were held back in a buffer and came in bursts."""

    def __init__(self):
        self._first_s = self._all_s = 0.0
        self._steps = self._bursts = self._together = 0
        self._most = self._most_wait_s = 0

    def came(self, count, took_s, waited_s, kept_s=0.0):
        """Record `count` steps that arrived in one read, `took_s` after the previous read. The supervisor had waited
        for `waited_s`; in the last `kept_s` of them, it was ready to read, but other processes ran."""
        if not self._steps:
            self._first_s = took_s
        self._steps += count
        self._all_s += took_s
        if count > 1 and 2 * kept_s < took_s:
            self._together += count
            if waited_s - kept_s >= WAIT_S:
                self._bursts += count
                self._most, self._most_wait_s = max((self._most, self._most_wait_s), (count, waited_s))

    def words(self):
        """Return why the rows do not count as steps; "" if they do."""
        if 2 * self._bursts > self._steps:
            return "%d of %d steps came in bursts, up to %d at once after %.3g s: it buffers its output" % (
                self._bursts, self._steps, self._most, self._most_wait_s,
            )  # fmt: skip
        if 2 * self._together > self._steps and self._first_s > FIRST_SHARE * self._all_s:
            return "%d of %d steps came together, and the first took %.3g of %.3g s: it may buffer its output" % (
                self._together, self._steps, self._first_s, self._all_s,
            )  # fmt: skip
        return ""
