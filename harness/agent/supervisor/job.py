"""Supervises one job: the conversation with the harness, the time limits, and the child's end.

`Job` is the same for a script, a program, a command and a server. What differs is its subject: `ranks.Ranks` are
processes that sample themselves, `command.Command` and `served.Served` are measured from outside.
"""

import json
import os
import selectors
import signal
import sys
import time
import traceback

from .. import caches, ending, inside, libc, mounted, samples, stopping, wire
from ..probes import file_sizes, gpus, image, memory, processes
from ..scenario import children
from . import census, child

PROGRESS_S = 1.0
FLUSH_S = 10.0
LEAST_PATIENCE_S = 1.0
PATIENCE_STEPS = 10
LEAST_STEPS = 3  # of a slice
OUTLIVING_S = 0.5  # after the end of a program, in which its helpers may end, too
SAMPLED_S = 1.0  # from which the samples of a run show its peak
LEAVE_S = 5.0  # for a command that runs in place, to end what it started elsewhere
NEXT_STEP_S = 0.01  # between two looks whether a slice has its steps


def supervise(root):
    """Read ROOT/job.json, send `hello`, and watch the trial to its end; return 0 if `done` could be sent, else 1."""
    begun, order = time.perf_counter(), samples.read_job(root)
    child.set_oom_score(-500)
    libc.adopt_orphans()
    outbox = wire.Outbox(1, order["marker"])
    mounted.link(order, root)
    if order.get("survey"):
        return mounted.survey(order, outbox)
    found = gpus.find_gpus()
    if gpus.visible_cards(found.cards, os.environ):
        # Otherwise TensorFlow reserves nearly all GPU memory immediately, and its figures mean nothing.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    told = dict(image.facts(order["environment"], os.environ, memory.find_cgroup()), **found.facts())
    told["mounts"] = mounted.in_trial(order)
    if order.get("in_place"):
        told.update(packages={}, wheels={})  # these are the harness's own
    outbox.send("hello", own_s=time.perf_counter() - begun, **told)
    if order.get("caches"):
        outbox.flush()  # what follows may take long
        problem = caches.prepared(order, root)
        if problem:
            outbox.send("done", end="infrastructure", message=problem)
            outbox.flush()
            return 0
    Job(order, root, outbox, found).run()
    if outbox.pending:
        sys.stderr.write("the harness did not read all messages of the agent\n")
    return 1 if outbox.pending else 0


def _subject_of(order):
    """Return the class of the job's subject; every launch would wait for the imports of all three."""
    if order.get("serve"):
        from .served import Served as Subject
    elif order["command"]:
        from .command import Command as Subject
    else:
        from .ranks import Ranks as Subject
    return Subject


def _own_failure(error):
    return "%sthe agent failed: %r" % (traceback.format_exc(), error)


class Job(object):
    """Runs one job from the child's start to `done`. `order`: the content of job.json.

    The subject has `table`, `columns` (name -> position in the table) and `beat_s` (seconds between two ticks, at
    most), and these functions: `open()` starts the child; `answered(answer)`, `printed(data)`, `drain()`, `tick(now)`,
    `overdue(now)`, `leave()` and `died(death)` handle events; `park_soon()`, `set_stop(value)` and `catch_up()` serve
    slices; `refresh()` updates the table, whose rows are complete if `is_whole`; `resident_kib()` and
    `stepping_pid()` tell of now, and `about()` returns fields of `done`.
    """

    def __init__(self, order, root, outbox, found):
        self.order = order
        self.root = root
        self.in_place = order.get("in_place")
        self.outbox = outbox
        self.clock = time.perf_counter
        self.rows, self.stride = samples.shape(order["looks"][-1])
        self.child = self.census = self.countdown = self._outlived_by = None
        self.over_time = None if order["script"] or order.get("serve") else census.MemoryOverTime(self.clock)
        self.wrapper = inside.make_wrapper(order, root)
        self.components = inside.make_component_lister(order)
        self.done = None
        self.shortfall = self.remedy = ""
        self.run_s = None  # how long a program or a command that ended by itself ran
        self.busy_s = None  # how long a program that did not end was busy after its last step
        self.end_s = None  # how long it took from its last step to its end
        self.peak_kib = 0  # the largest that a process told of itself
        self.memory_error = False
        self.notes = []
        self.output = wire.Output()
        self.workers = processes.Workers()
        self.oom = memory.OomKiller(memory.find_cgroup())
        self.asked_at = None  # when the harness was asked, while it has not answered
        self.is_parked = False
        self.sent = 0  # rows of the table
        self._ready = None  # the message, until it is sent
        self._is_alone = False  # the harness is gone
        self._slice = None  # the earliest time and step at which the child is asked to park
        self._commands = wire.Lines()
        self._progress_at = self.clock() + PROGRESS_S
        self._selector = selectors.PollSelector()
        self._signals = child.signals_as_fd()
        self.subject = _subject_of(order)(self)
        self.monitor = gpus.Monitor(found, self.subject.table, os.environ, clock=self.clock)

    # -------------------------------------------------------------- the loop

    def run(self):
        """Run until `done` is decided and sent. Every started process is ended in any case."""
        self.listen(0, self._heard)
        self.listen(self._signals, self._signalled)
        try:
            self.subject.open()
            while self.done is None:
                self._turn(self._pause_s())
        except ending.Missing as error:  # raised by `open`
            self.end("setup", str(error))
        except Exception as error:  # a bug of the agent, which must not count against the image
            self.end("infrastructure", _own_failure(error))
        try:
            self._finish()
        except Exception as error:
            if self.child is not None:
                self.child.kill()
            self.outbox.send("done", end="infrastructure", message=_own_failure(error))
        if self._is_alone:  # else the harness does it, once this process has ended
            stopping.stop(self.root)
        until = self.clock() + FLUSH_S
        while self.outbox.pending and not self._is_alone and self.clock() < until:
            self._exchange(0.1)

    def listen(self, fd, callback):
        """Call `callback()` whenever the descriptor is readable."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def hears(self, fd):
        return fd in self._selector.get_map()

    def mute(self, fd):
        """Stop listening to the descriptor."""
        if self.hears(fd):
            self._selector.unregister(fd)

    def folder(self):
        """Return the folder in which the child starts: the user's own, or that of the scenario's files."""
        copied = os.path.join(self.root, "scenario")
        return self.in_place["folder"] if self.in_place else copied if os.path.isdir(copied) else self.root

    def start(self, command, inherited=()):
        """Start the child. Raises OSError or Missing."""
        if self.wrapper is not None:
            command = self.wrapper.command(command)
            os.environ.update(self.wrapper.environment)
        places = file_sizes.Places(self.root, os.environ, self.output)  # walks through the folders before anything runs
        self.child = child.Child(self.root, command, self.folder(), inherited)
        self.countdown = child.Countdown(self.order["timeout_s"], self.clock())
        self.census = census.Census(self.child.pid, places, self.steps, self.workers, clock=self.clock)
        self.listen(self.child.output, self.read_output)

    def _turn(self, pause_s):
        self.subject.refresh()
        self._exchange(pause_s)
        now = self.clock()
        if self.done is not None:
            return
        if self.child.death is not None:
            self.drain()
            self.subject.died(self.child.death)
        elif self.asked_at is not None:
            if now >= self._deadline_of_answer():
                what = "no slice" if self.is_parked else "no answer to a look"
                self.end("infrastructure", "%s within %g s" % (what, self._patience_s()))
            if self.is_parked:
                return
        elif self.countdown.left(now) <= 0:
            self.subject.overdue(now)
        elif self._slice is not None and now >= self._slice[0] and self.steps() >= self._slice[1]:
            self._slice = None
            self.subject.park_soon()
        self.components.look()
        if now >= self._progress_at:
            self._progress_at = now + PROGRESS_S
            resident_kib = wire.json_number(self.subject.resident_kib())
            self.outbox.send("progress", step=self.steps(), rss_kib=resident_kib)
        if self.asked_at is None:
            self.monitor.tick(now, self.sent)
            self.census.tick(now)
            if self.over_time is not None:
                self.over_time.tick(now, self.order["timeout_s"] - self.countdown.left(now))
        self.subject.tick(now)

    def _exchange(self, pause_s):
        """Read and write what is possible, waiting up to `pause_s` for it."""
        if self.outbox.pending and not self._is_alone:
            self._selector.register(self.outbox.fd, selectors.EVENT_WRITE, self.outbox.write_some)
        try:
            for key, _ in self._selector.select(pause_s):
                key.data()
        except BrokenPipeError:
            self._lose_harness()
        finally:
            self.mute(self.outbox.fd)

    def _pause_s(self):
        """Return the seconds to the next timed event: progress, the end of a wait, the deadline."""
        now = self.clock()
        if self.is_parked:
            return max(0.0, self._deadline_of_answer() - now)
        beat_s = self.monitor.beat_s(min(PROGRESS_S, self.subject.beat_s))
        if self._slice is not None:
            beat_s = min(beat_s, max(self._slice[0] - now, NEXT_STEP_S))
        if self.asked_at is None:
            left, beat_s = self.countdown.left(now), self.census.beat_s(now, beat_s)
            beat_s = beat_s if self.over_time is None else self.over_time.beat_s(now, beat_s)
        else:
            left = self._deadline_of_answer() - now
        return max(0.0 if left > 0 else 0.02, min(left, self._progress_at - now, beat_s))

    # -------------------------------------------------------------- what comes in

    def _heard(self):
        data = os.read(0, 1 << 16)
        if not data:
            self._lose_harness()
        for line in self._commands.feed(data):
            if b'"leave"' in line:
                self.subject.leave()
            elif self.asked_at is not None and line.strip():
                self.asked_at = None
                self.countdown.resume(self.clock())
                if self.is_parked:
                    self._start_slice(json.loads(line.decode("ascii"))["slice"])
                else:
                    self.subject.answered("stop" if b'"stop"' in line else "go")

    def _lose_harness(self):
        self._is_alone = True
        self.mute(0)
        self.end("infrastructure", "the harness is gone")

    def _deadline_of_answer(self):
        return self.asked_at + self._patience_s()

    def _patience_s(self):
        """Return the seconds to wait for the harness. While this launch is parked, the others may run their setups."""
        others_s = 2 * self.order["timeout_s"] * self.order["slices"] if self.is_parked else 0.0
        return self.order["answer_timeout_s"] + others_s

    def _signalled(self):
        numbers = set(os.read(self._signals, 512))
        if self.child is not None:
            self.child.reap()
        fatal = sorted(numbers - {signal.SIGCHLD})
        if fatal:
            self.end("infrastructure", "the agent was ended by %s" % signal.Signals(fatal[0]).name)

    def read_output(self):
        """Read what the child has printed. Return whether there was anything."""
        data = wire.read_available(self.child.output)
        if data:
            self.output.add(data)
            self.subject.printed(data)
        elif data is not None:
            self.mute(self.child.output)
        return bool(data)

    def drain_output(self):
        """Read what is in the child's pipe, in a limited number of reads: its children may still write."""
        for _ in range(64):
            if not self.read_output():
                return

    def drain(self):
        """Read all that the child has printed and told."""
        self.drain_output()
        self.subject.drain()

    # -------------------------------------------------------------- what goes out

    def ready(self, setup_s, first_step_s, probes, step_kind=None, step_shape=None):
        """Note what was counted and printed up to the first step; `ready` is sent before anything else, because a
        framework may yet make a first step after lines did."""
        self.output.stepped()
        self.census.restart()
        self.components.look()
        self._ready = {
            "setup_s": setup_s,
            "first_step_s": first_step_s,
            "libraries": processes.of_interest(self.subject.stepping_pid()),
            "probes": probes + (["gpu"] if self.monitor.columns else []),
            "stride": self.stride,
            "step_kind": step_kind,
            "step_shape": step_shape,
        }
        if step_kind != "line":
            self._send_ready()

    @property
    def may_be_ready_again(self):
        """Return whether `ready` waits to be sent, so that another first step may replace it."""
        return self._ready is not None

    def _send_ready(self):
        if self._ready is not None:
            self.outbox.send("ready", **self._ready)
            self._ready = None

    def look(self, step, look, last):
        """Send a look after the samples that it covers. Unless it is the last, wait for an answer from then on."""
        look = dict(look, **self.monitor.look())
        if not self.subject.table.header[samples.OVER]:
            self.census.look()
        elif last:
            look["left_kib"] = self.census.left_kib()
        self.components.look()
        self._send_ready()
        self._send_samples()
        self.outbox.send("look", step=step, look={name: wire.json_number(look[name]) for name in look}, last=last)
        if not last:
            self.asked_at = self.clock()
            self.countdown.pause(self.asked_at)

    def _send_samples(self):
        self.subject.refresh(is_whole=True)
        places = dict(self.subject.columns, **self.monitor.columns)
        columns = {name: self.subject.table.column(place) for name, place in places.items()}
        for rows in wire.chunks(self.sent, self.subject.table.taken(), len(columns)):
            chunk = {name: [wire.json_number(column[row]) for row in rows] for name, column in columns.items()}
            chunk["step"] = [(row + 1) * self.stride for row in rows]
            self.outbox.send("samples", columns=chunk)
            self.sent = rows.stop
        counts = self.census.columns()
        if counts:
            self.outbox.send("counts", columns=counts)

    def send_file(self, name, text):
        """Send a result file of a wrapping probe."""
        for piece in inside.text_parts(text):
            self.outbox.send("file", name=name, text=piece)

    # -------------------------------------------------------------- slices

    def park(self):
        """Freeze the child, which stands between two steps, until the harness starts its next slice."""
        self.is_parked, self.asked_at = True, self.clock()
        self.countdown.pause(self.asked_at)
        frozen = self.child.freeze()
        self.outbox.send("parked", step=self.steps(), frozen=frozen)

    def _start_slice(self, seconds):
        self.is_parked = False
        until, least = self.clock() + seconds, self.steps() + LEAST_STEPS - 1  # it parks after the step that follows
        self.subject.set_stop(0)
        self.subject.table.header[samples.STARTED] = self.clock()
        self.child.thaw()
        self.subject.answered("go")
        self._slice = until, least + self.subject.catch_up()

    # -------------------------------------------------------------- the end

    def steps(self):
        """Return the number of steps made so far."""
        self.subject.refresh()  # ranks may have made steps since this turn began
        return int(self.subject.table.header[samples.STEPS])

    def is_stuck(self, now):
        """Return whether the step in progress takes much longer than the earlier steps did."""
        table = self.subject.table
        patience_s = max(LEAST_PATIENCE_S, PATIENCE_STEPS * table.largest(self.subject.columns["step_s"]))
        return now - table.header[samples.STARTED] > patience_s

    def end(self, end, message, death=None, stacks="", at_exit=False):
        """Record how the trial ended. Only the first call counts. `death`: the process's death, if that decided the
        end; `at_exit`: the trial failed after its last step."""
        if self.done is None:
            starved = end not in ending.WELL and self.oom.starved(self.peak_rss_kib)
            self.done = {
                "end": "infrastructure" if starved else end,
                "message": ending.STARVED % message if starved else message,
                "starved": starved,
                "oom_in_setup": end == "setup" and not starved and (self.memory_error or self.oom.killed()),
                "signal": death and death.signal,
                "exit_code": death and death.exit_code,
                "stacks": stacks[: wire.TAIL_BYTES],
                "at_exit": at_exit,
            }

    def _tell_of_children(self):
        """Add a line to the output for each way in which children died that no exit code shows. The kernel, out of
        memory, killed one of them if it did not kill the child itself."""
        told = [children.TOLD % ending.signal_name(each) for each in set(self.child.orphans_killed) & children.FATAL]
        if self.done["end"] in ending.WELL and self.oom.killed():
            told.append(children.TOLD % "the kernel: out of memory")
        for line in sorted(told):
            self.output.add(line.encode("ascii"))

    def _finish(self):
        """Kill what is left, then send the last samples and `done`."""
        if self.child is not None:
            self.census.end()
            if self.in_place and self.child.death is None:
                self.child.ask_to_leave(LEAVE_S)
            self._tell_of_children()
            if self.child.death is not None and self.done["end"] in ending.WELL:
                self._outlived_by = self.child.outlived_by(OUTLIVING_S)[: ending.MOST_OUTLIVING]
            if self.child.death is None:
                self.child.kept_waiting = processes.kept_waiting(self.child.pid)
            self.child.kill()
            self.drain()
            self._send_ready()
            self._send_samples()
            if self.over_time is not None:
                self.outbox.send("over_time", columns=self.over_time.columns)
        for name, text in (self.wrapper or self.components).files().items():
            self.send_file(name, text)
        notes = self.notes + self.monitor.notes()
        header = self.subject.table.header
        busy_s = header[samples.BUSY_S]
        self.outbox.send(
            "done",
            last_step=self.steps(),
            peak_rss_kib=wire.json_number(self.peak_rss_kib()),
            run_s=wire.json_number(self.run_s),
            end_s=wire.json_number(self.end_s),
            busy_s=wire.json_number(self.busy_s),
            kept_waiting=wire.json_number(self.child and self.child.kept_waiting),
            outlived_by=self._outlived_by,
            probe_cost=wire.json_number(header[samples.OVERHEAD_S] / busy_s) if busy_s else None,
            # The end comes last, for programs that read only the last line.
            **dict(self.done, message="\n".join([*notes, self.done["message"]]).strip()),
            shortfall=self.shortfall,
            remedy=self.remedy,
            **dict(self.output.fields(), **dict({"not_finite": {}, "buffered": ""}, **self.subject.about())),
        )

    def peak_rss_kib(self):
        """Return the largest of all samples, the kernel's peak of the child, and what the processes told; None if all
        are unknown; 0 if all are below that of the supervisor's fork, in a run that is too short for samples."""
        place = self.subject.columns.get("rss_kib")  # a process that cannot read its own has none
        largest_kib = 0 if place is None else self.subject.table.largest(place)
        death = self.child and self.child.death
        known_kib = max(death.peak_rss_kib if death else 0, self.peak_kib)
        is_short = self.run_s is not None and self.run_s < SAMPLED_S
        if death and not known_kib and is_short and largest_kib <= self.child.peak_of_fork_kib:
            return 0
        return max(largest_kib, known_kib) or None
