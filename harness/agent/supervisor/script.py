"""Supervises a script scenario: starts the scenario process (scenario/script_run.py) and handles its events."""

import json
import os
import re
import sys
import time

from .. import ending, libc, samples, wire
from ..probes import processes
from .trial_watch import Watch

AFTER_END_S = 30.0
AFTER_FAILURE_S = 10.0
STACKS_S = 2.0
STACKS_PAUSE_S = 0.1
COMMAND_LINE_TURNS = 25
COMMAND_LINE_PAUSE_S = 0.002
LOST = (
    "after step %d: the scenario closed the agent's own file descriptors, so it can report nothing more; it may close "
    "descriptors that it opened, but none from %d on"
)
PROBES = {"rss_kib": "rss", "heap_kib": "heap", "blocks": "python", "gpu_pool_kib": "gpu pool"}


class ScriptWatch(Watch):
    """Watches a script that runs in a separate interpreter and samples itself into shared memory."""

    def __init__(self, job, root, outbox, gpus):
        Watch.__init__(self, job, root, outbox, gpus)
        self._table_fd = libc.raised(samples.shared_file("samples", samples.table_bytes(self.rows)))
        self._stacks_fd = libc.raised(samples.shared_file("stacks", 0))
        self.measure_in(samples.Table(self._table_fd, self.rows, self.stride))
        self.columns = {name: place for place, name in enumerate(samples.COLUMNS[: samples.ALWAYS])}
        self._events_fd = None
        self._lowest_fd = None
        self._answers_fd = None
        self._lines = wire.Lines()
        self._verdict = None  # (end, message), as the scenario process reported it
        self._made_its_steps = False
        self._ended_at = None  # when it had made its last step and reported its end, before its process ended
        self._failed_at_exit = False
        self._metrics = []
        self._leave_by = None
        self._setup_s = 0.0
        self._told_to_end = False
        self._replaced = False  # it became another program (os.exec), which has no handler for STACKS_SIGNAL

    def open(self):
        self._events_fd, events = os.pipe()
        answers, self._answers_fd = os.pipe()
        os.set_blocking(self._events_fd, False)
        events, answers = libc.raised(events), libc.raised(answers)
        inherited = (events, answers, self._table_fd, self._stacks_fd)
        self._lowest_fd = min(inherited)
        start = os.path.join(self.root, "start.py")
        # -u: output before a segmentation fault must not be lost in a buffer.
        command = [sys.executable, "-B", "-u", start] + [str(fd) for fd in inherited]
        try:
            self.start(command, inherited)
        except ending.Missing as error:
            self.end("setup", str(error))
        os.close(events)
        os.close(answers)
        self.listen(self._events_fd, self._events)

    # -------------------------------------------------------------- events of the scenario process

    def _events(self):
        data = wire.read_available(self._events_fd)
        if data == b"":
            self.mute(self._events_fd)
            self._replaced = self._replaced or self._is_another_program()
        self.output.event_bytes += len(data or b"")
        for line in self._lines.feed(data or b""):
            event = json.loads(line.decode("ascii"))
            getattr(self, "_on_" + event.pop("type"))(**event)
        return bool(data)

    def _is_another_program(self):
        """Return whether the living process runs a program other than the one that the agent started.

        During exec, and while the process ends, its command line is empty for a moment.
        """
        for _ in range(COMMAND_LINE_TURNS):
            words = processes.command_line(self.child.pid)
            if words:
                return os.fsencode(os.path.join(self.root, "start.py")) not in words
            self.child.reap()
            if self.child.death is not None:
                return False
            time.sleep(COMMAND_LINE_PAUSE_S)
        return False

    def drain(self):
        Watch.drain(self)
        while self._events():
            continue

    def _on_ready(self, setup_s, first_step_s, probes, metrics, **steps):
        self._setup_s = setup_s or 0.0
        self._metrics = metrics
        Watch.drain(self)  # the scenario waits, so this is its complete output so far
        first = len(samples.COLUMNS)
        self.columns = {"step_s": 0}
        self.columns.update((name, samples.COLUMNS.index(name)) for name in probes)
        self.columns.update((name, first + place) for place, name in enumerate(metrics))
        self.ready(setup_s, first_step_s, [PROBES[name] for name in probes], **steps)
        if self.job.get("slices"):
            self.park()
        else:
            self.answered("go")

    def _on_metric(self, name):
        if name not in self._metrics:
            self._metrics.append(name)
            self.columns[name] = len(samples.COLUMNS) + len(self._metrics) - 1

    def _on_look(self, step, look, last):
        self.look(step, look, last)
        if last:
            self.answered("stop")  # it had to wait, so that the look found its GPU memory still in use

    def _on_parked(self):
        self.park()

    def park_soon(self):
        if self._verdict is None and not self.table.header[samples.STOP]:
            self.set_stop(samples.PARK)

    def _on_failed(self, waits=False, **event):
        self.components.look()
        self.memory_error = event["oom"]
        self._leave(ending.of_failure(event, self.oom.killed()))
        if waits:
            self.answered("go")

    def _on_ended(self, end, at):
        self._made_its_steps, self._ended_at = self._verdict is None, at
        self._leave_after_steps(end)

    def _leave_after_steps(self, end):
        """Leave with an end that the time limit may have caused."""
        if self.table.header[samples.STOP] == samples.END and end == "stopped":
            self._leave((end, "time limit reached after %d steps" % self.steps()), "timeout")
        else:
            self._leave((end, ""))

    def _on_teardown(self, **event):
        if self.wrapper is not None:
            self.notes.append(event["message"].splitlines()[-1])
        elif self._made_its_steps:
            self._failed_at_exit = True
            self._verdict = ending.of_failure(dict(event, setup=False), self.oom.killed())

    def _on_file(self, name, text):
        self.file(name, text)

    def _leave(self, verdict, shortfall=""):
        """Record how the scenario ended, and start waiting for its process to end.

        Only the first report counts: after a failure in a forked process, the parent may still report a good end.
        """
        if self._verdict is not None:
            return
        self._verdict, self.shortfall = verdict, shortfall
        self._leave_by = self.clock() + self._ending_s()

    def _ending_s(self):
        """Return the seconds that its threads, children and teardown have to end. Inside a wrapping program, all of
        them are slow, but hardly slower than the setup was."""
        limit_s = AFTER_END_S if self._made_its_steps else AFTER_FAILURE_S
        return limit_s if self.wrapper is None else max(limit_s, self._setup_s)

    # -------------------------------------------------------------- end

    def answered(self, answer):
        self._answer(self._answers_fd, answer)

    def _answer(self, fd, answer):
        try:
            os.write(fd, answer.encode("ascii") + b"\n")
        except OSError:
            return  # it died while it waited, which will be noticed next

    def tick(self, now):
        if self.done is not None or self._leave_by is None or now <= self._leave_by:
            return
        late = "the process did not end within %.0f s" % self._ending_s()
        if self._made_its_steps and not self._failed_at_exit and self.wrapper is None:
            stacks = self._ask_stacks()
            self.end("hang", "%s: %s%s" % (ending.AT_EXIT, late, self._place(stacks)), stacks=stacks, at_exit=True)
            return
        late += " of its last step"
        if self.wrapper is not None and not self._told_to_end:
            self._told_to_end = True
            self._leave_by = now + min(self.wrapper.after_end_s, max(AFTER_END_S, self.job["timeout_s"]))
            self.notes.append(late + ": ended by SIGTERM, so that the program around it can report")
            self.child.terminate()
            return
        self.notes.append((late if self.wrapper is None else "it did not end after SIGTERM") + ": killed")
        self.end(*self._verdict, at_exit=self._failed_at_exit)

    def died(self, death):
        if self._ended_at is not None:
            self.end_s = self.clock() - self._ended_at
        if self._verdict is None:
            self._died_without_a_word(death)
            return
        if self._made_its_steps and not self._failed_at_exit and self.wrapper is None and ending.is_bad(death):
            end, message = ending.of_death(death, ending.AT_EXIT, False, self.oom.killed())
            stacks = self._stacks()
            self.end(end, message + self._place(stacks), death=death, stacks=stacks, at_exit=True)
            return
        if death.signal is not None and not self._told_to_end:
            self.notes.append("after its last step: killed by %s" % ending.signal_name(death.signal))
        self.end(*self._verdict, at_exit=self._failed_at_exit)

    def _died_without_a_word(self, death):
        if self.table.header[samples.LOST]:
            self.end("infrastructure", LOST % (self.steps(), self._lowest_fd), death=death)
            return
        place = "setup" if self._in_setup() else self._place_now()
        end, message = ending.of_death(death, place, self._in_setup(), self.oom.killed())
        stacks = self._stacks()
        self.end(end, message + self._place(stacks), death=death, stacks=stacks)

    def overdue(self, now):
        """Handle the time limit: end the scenario between two steps if it makes any, else find where it hangs."""
        if self._verdict is not None:
            return
        limit_s = self.job["timeout_s"]
        if self._in_setup():
            self._setup_overdue(limit_s)
            return
        self.set_stop(samples.END)
        if self.stuck(now):
            message = "%s: no progress at the time limit of %g s" % (self._place_now(), limit_s)
            stacks = self._ask_stacks()
            self.end("hang", message + self._place(stacks), stacks=stacks)

    def _setup_overdue(self, limit_s):
        stacks = self._ask_stacks()
        self.end("setup", "setup did not finish in %g s" % limit_s + self._place(stacks), stacks=stacks)

    def _place_now(self):
        return ending.place_after(self.steps(), self.job["looks"][-1])

    def _in_setup(self):
        return self.table.header[samples.STARTED] == 0

    def about_output(self):
        return dict(Watch.about_output(self), not_finite=self.table.not_finite(self._metrics))

    def resident(self):
        return self.table.last(samples.COLUMNS.index("rss_kib"))

    # -------------------------------------------------------------- stacks

    def _ask_stacks(self):
        """Return the stacks of the processes that make the steps."""
        return "" if self._replaced else self._stacks_of(self.child.pid)

    def _stacks_of(self, pid):
        """Return the stacks of all threads, which faulthandler writes even if the process is stuck in C; "" if it has
        ended."""
        before, until, text = os.fstat(self._stacks_fd).st_size, self.clock() + STACKS_S, ""
        try:
            os.kill(pid, ending.STACKS_SIGNAL)
        except OSError:
            return ""
        while self.clock() < until:
            time.sleep(STACKS_PAUSE_S)
            newest = self._stacks(before)
            if newest and newest == text:
                break
            text = newest
        return text

    def _stacks(self, start=0):
        """Return what faulthandler wrote from `start` on, without the agent's own frames."""
        text = os.pread(self._stacks_fd, wire.TAIL_BYTES, start).decode("utf-8", "replace")
        ours = ('File "%s/harness_agent/' % self.root, 'File "%s/start.py"' % self.root)
        return "".join(line for line in text.splitlines(True) if not line.strip().startswith(ours))

    def _place(self, stacks):
        """Return ` (file:line in function)` of the innermost frame in the user's files, or ""."""
        frame = re.search(r'File "%s/scenario/(.+?)", line (\d+) in (\S+)' % re.escape(self.root), stacks)
        return " (%s:%s in %s)" % frame.groups() if frame else ""
