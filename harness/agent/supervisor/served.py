"""Measures a server: starts it, lets the client (serving/client.py) send it requests, and ends it with SIGTERM.

The client is a process of the agent, and not among those that are measured. It fills the table.
"""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time

from .. import ending, libc, samples, wire
from ..probes import processes
from ..serving import GRACE_S, KEPT
from . import child
from .command import ANON_KIB, RSS_KIB, STEP_S, Outside

BEAT_S = 0.05
LATE_S = 10.0
"""After so long, it is told why a server is not ready. It may take minutes to load a model."""
STOP_S = 10.0
"""Seconds that the client has to end its requests after the time limit."""
DEATH_S, DEATH_PAUSE_S = 1.0, 0.01
"""Between a refused connection and the death of the server's process, at most."""
NO_CLIENT = "the client cannot be started: %s: %s; if that is mounted with noexec, mount it without, or use containers"
FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
"""Signals by which a process that was told to end does so by a fault of its own."""


class Served(Outside):
    """The subject of a job that is a server."""

    beat_s = BEAT_S

    def __init__(self, job):
        self._job, self._serve, self._timeout_s = job, job.order["serve"], job.order["timeout_s"]
        job.workers = None  # their memory is in the samples
        self._table_fd = libc.raised(samples.shared_file("samples", samples.table_bytes(job.rows)))
        self.table = samples.Table(self._table_fd, job.rows, job.stride)
        self.table.clear(STEP_S, 3)
        asked = [samples.COLUMNS.index(name) for name in ("first_token_s", "token_s", "failed")]
        self.table.clear(asked[0], len(asked))
        self.columns = {"step_s": STEP_S, "rss_kib": RSS_KIB, "anon_kib": ANON_KIB}
        self.columns.update((samples.COLUMNS[place], place) for place in asked)
        self._metrics = []
        self._events = wire.Lines()
        self._lines = wire.Lines()
        self._client = self._events_fd = self._answers_fd = None
        self._line = self._serve["ready"].get("line")  # that the server prints when it is ready; None once it has
        self._why = ""  # why the server is not ready, as the client says
        self._verdict = None  # (end, message), after which the server is told to end
        self._told_at = None  # when it was told
        self._overdue_at, self._is_stuck, self._is_late = None, False, False
        self._cpu_before_s, self._moved_before = 0.0, {}

    # -------------------------------------------------------------- start

    def open(self):
        self._port = self._serve["port"] or _free_port()
        if _listens(self._port):
            text = "port %d is in use on this machine; stop what listens there, or write {port} in `serve`"
            self._job.end("infrastructure", text % self._port)
            return
        command = [word.replace("{port}", str(self._port)) for word in self._job.order["command"]]
        os.environ.update(
            {name: value.replace("{port}", str(self._port)) for name, value in os.environ.items() if "{port}" in value}
        )
        self._opened_at = self._job.clock()
        self._start(command)
        if self._line is None:
            self._start_client()

    def _start_client(self):
        self._events_fd, events = os.pipe()
        answers, self._answers_fd = os.pipe()
        os.set_blocking(self._events_fd, False)
        inherited = (events, answers, self._table_fd)
        words = [str(word) for word in (*inherited, self._port, repr(self._opened_at))]
        root = self._job.root
        python = [word.replace("{root}", root) for word in self._job.order.get("client") or (sys.executable,)]
        try:
            self._client = subprocess.Popen(
                child.own_command(root, "client", *words, python=python),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={
                    KEPT + name if name.startswith(("PYTHON", "LD_")) else name: value
                    for name, value in os.environ.items()
                },
                pass_fds=inherited,
                start_new_session=True,
                preexec_fn=functools.partial(libc.die_with_parent, os.getpid()),  # noqa: PLW1509 (the supervisor has one thread)
            )
        except OSError as error:
            self._job.end("infrastructure", NO_CLIENT % (python[0], os.strerror(error.errno)))
            return
        self._client.returncode = 0  # the supervisor waits for it as for all orphans
        processes.OURS.add(self._client.pid)
        os.close(events)
        os.close(answers)
        self._job.listen(self._events_fd, self._heard)

    def printed(self, data):
        if self._line is not None:
            wanted = self._line.encode("utf-8")
            if any(wanted in line for line in self._lines.feed(data)):
                self._line = None
                self._start_client()

    # -------------------------------------------------------------- the client

    def _heard(self):
        data = wire.read_available(self._events_fd)
        if data == b"":
            self._job.mute(self._events_fd)
            if self._verdict is None and self._job.child.death is None:
                self._job.end("infrastructure", "the client of the agent ended before the trial did")
        for line in self._events.feed(data or b""):
            event = json.loads(line.decode("ascii"))
            getattr(self, "_on_" + event.pop("type"))(**event)
        return bool(data)

    def drain(self):
        while self._client is not None and self._job.hears(self._events_fd) and self._heard():
            continue

    def answered(self, answer):
        try:
            os.write(self._answers_fd, answer.encode("ascii") + b"\n")
        except BrokenPipeError:
            return  # it has ended, and said why

    def _on_waiting(self, why):
        self._why = why

    def _on_ready(self, setup_s, first_step_s, address):
        self._job.drain_output()
        self._cpu_before_s = processes.children_s()
        self._moved_before = processes.moved_since({}, processes.descendants(), {})
        self._job.ready(setup_s, first_step_s, ["rss"], step_kind="request")
        if self._job.order.get("slices"):
            self._job.park()
        else:
            self.answered("go")

    def _on_metric(self, name):
        self.columns[name] = len(samples.COLUMNS) + len(self._metrics)
        self._metrics.append(name)

    def _on_parked(self):
        self._job.park()

    def _on_look(self, step, last):
        self._job.look(step, self._fields(), last)
        if last:
            self.answered("go")

    def _on_ended(self, end, errors, run_s=None):
        if errors:
            total = sum(count for _, count in errors)
            kinds = "; ".join("%s (%d)" % (why, count) for why, count in errors)
            self._job.notes.append("%d of %d requests failed: %s" % (total, self._job.steps(), kinds))
        self._job.run_s = run_s
        if self._overdue_at is None:
            self._leave(end, "")
        else:
            self._job.shortfall = "timeout"
            self._leave("stopped", "time limit reached after %d requests" % self._job.steps())

    def _on_failed(self, setup, hang, message):
        """Take the failure for the trial's end, unless the server's process has ended, which says more."""
        if hang or self._outlives_its_client():
            place = "before the first reply" if setup else "after request %d" % self._job.steps()
            end = "setup" if setup else "hang" if hang else "crash"
            self._job.end(end, ending.placed(place, message))

    def _on_gave_up(self, message):
        """End the trial, which says nothing about the server, unless the server's process has ended."""
        if self._outlives_its_client():
            self._job.end("infrastructure", message)

    def _outlives_its_client(self):
        """Wait for the death of the server's process if it listens no more. Return whether it lives."""
        until = self._job.clock() + DEATH_S
        while self._job.child.death is None and self._job.clock() < until:
            self._job.child.reap()
            if processes.listening(processes.descendants()):
                break
            time.sleep(DEATH_PAUSE_S)
        return self._job.child.death is None

    def _on_broken(self, message):
        self._job.end("infrastructure", message)

    # -------------------------------------------------------------- samples and time

    def refresh(self, is_whole=False):
        """Do nothing: the client writes whole rows."""

    def park_soon(self):
        self.set_stop(samples.PARK)

    def set_stop(self, value):
        self.table.header[samples.STOP] = value

    def catch_up(self):
        """Return how many steps were made while it was parked: none."""
        return 0

    def tick(self, now):
        if self._told_at is not None:
            if now - self._told_at > GRACE_S:
                self._job.notes.append("the server did not end within %g s of SIGTERM, and was killed" % GRACE_S)
                self._job.end_s = now - self._told_at
                self._job.end(*self._verdict)
        elif not self._job.steps():
            limit_s, waited_s = self._serve["ready_timeout_s"], now - self._opened_at
            if limit_s and waited_s > limit_s:
                self._job.end("setup", self._not_ready(limit_s))
            elif waited_s > LATE_S and not self._is_late:
                self._is_late = True
                self._job.outbox.send("progress", step=0, note=self._late(LATE_S))

    def overdue(self, now):
        steps = self._job.steps()
        if self._verdict is not None:
            return  # the server was told to end, which has a limit of its own
        if not steps:
            self._job.end("setup", self._not_ready(self._timeout_s))
        elif self._serve.get("generator"):
            self._job.shortfall = "timeout"
            self._job.end("stopped", "time limit reached while the load generator ran")
        elif self._overdue_at is None:
            self._overdue_at = now
            self._is_stuck = self._job.is_stuck(now)
            self.set_stop(samples.END)
        if self._overdue_at is not None and (self._is_stuck or now - self._overdue_at > STOP_S):
            self._job.end("hang", "after request %d: no progress at the time limit of %g s" % (steps, self._timeout_s))

    def _not_ready(self, limit_s):
        """Return why the server was not ready in time, with its last line."""
        said = self._said()
        return self._late(limit_s) + ("; its last line is: " + said if said else "")

    def _late(self, limit_s):
        """Return why the server was not ready in time: what the client saw, or on which ports it listens instead. It is
        the same in each launch, so that a note of it is told once."""
        if self._line is not None:
            why = "it printed no line with %r" % self._line
        elif self._why:
            why = self._why
        else:
            ports = processes.listening(processes.descendants())
            where = "it listens on %s" % ", ".join(ports[:5]) if ports else "it listens on no port"
            is_there = any(each.endswith(":%d" % self._port) for each in ports)
            why = where + (", and answers no request" if is_there else ", not on %d" % self._port if ports else "")
        return "the server was not ready within %g s: %s" % (limit_s, why)

    # -------------------------------------------------------------- the end

    def _leave(self, end, message):
        """Tell the server to end, and wait for that."""
        self._verdict, self._told_at = (end, message), self._job.clock()
        self._job.child.terminate()

    def died(self, death):
        now = self._job.clock()
        if self._told_at is not None:
            self._job.end_s = now - self._told_at
            if death.signal in FAULTS:
                end, message = ending.of_death(death, ending.AT_EXIT, False, self._job.oom.killed(), self._said())
                self._job.end(end, message, death=death, at_exit=True)
            else:
                self._job.end(*self._verdict)
            return
        living = [
            each.pid for each in map(processes.look_at, processes.descendants()) if each and each.state not in "ZX"
        ]
        if death.exit_code == 0 and living:  # it has made itself a daemon
            self._job.child.follow(living[0])
            self._job.census.pid = living[0]
            return
        self._job.is_parked, self._job.asked_at = False, None
        steps = self._job.steps()
        place = "after request %d" % steps if steps else "before the first reply"
        place = "while the load generator ran" if steps and self._serve.get("generator") else place
        if death.exit_code == 0:
            text = ending.placed(place, "the server ended by itself with exit code 0", self._said())
            self._job.end("crash" if steps else "setup", text, death=death)
        else:
            end, message = ending.of_death(death, place, not steps, self._job.oom.killed(), self._said())
            self._job.end(end, message, death=death)

    def about(self):
        return {"not_finite": self.table.not_finite(self._metrics)}


def _free_port():
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return link.getsockname()[1]


def _listens(port):
    """Return whether something accepts connections on a port of this machine."""
    with socket.socket() as link:
        link.settimeout(1.0)
        return link.connect_ex(("127.0.0.1", port)) == 0
