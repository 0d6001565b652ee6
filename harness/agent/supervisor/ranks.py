"""Watches the processes that sample themselves: that of a script (scenario/script_run.py), or the ranks among those of
a program (scenario/program_run.py). A script is a group of one. Unlike a script, a program may make no step that the
agent sees: the message then says why.

The process of a script inherits two pipes. The ranks of a program join over a socket. Each takes its looks by itself
and is answered at once, but for the lead, whose looks are those of the job: they go to the harness.
"""

import array
import collections
import functools
import json
import os
import signal
import socket
import time

from .. import ending, libc, samples, wire
from ..probes import processes
from ..scenario import children, hooks
from . import child, group, stalls, standstill

AFTER_END_S = 30.0
OTHERS_S = 0.5  # that a look of the lead waits for those of the other ranks
BEAT_S = 0.05  # while there are several ranks
GONE_TURNS, GONE_PAUSE_S = 20, 0.001  # between the end of a conversation and the end of its process
SEEN_S = 0.05  # a death by a signal is seen up to so much later than the failures of those who notice it
LEAST_GRACE_S = 10.0
"""Seconds that a program has at least to end by itself after its steps; it has as many as it took so far."""
PROBES = {"rss_kib": "rss", "anon_kib": "", "heap_kib": "heap", "blocks": "python", "gpu_pool_kib": "gpu pool"}
Pending = collections.namedtuple("Pending", "step last until")
TOLERATED = "\nharness: Error while the other ranks went on: %s\n"


class Ranks(object):
    """The subject of a job that is a script or a program."""

    def __init__(self, job):
        self._job, self._budget = job, job.order["looks"][-1]
        self._table_fd = libc.raised(samples.shared_file("samples", samples.table_bytes(job.rows)))
        self.table = samples.Table(self._table_fd, job.rows, job.stride)
        self.columns = {name: place for place, name in enumerate(samples.COLUMNS[: samples.ALWAYS])}
        self._metrics = []
        self._stacks = stalls.Stacks(job.root, job.clock)
        self._program = job.order.get("program")
        self._steps_are = self._program["steps_are"] if self._program else None
        self._launcher = (self._program or {}).get("launcher") or []
        self._group = group.Group(job.rows, job.stride, self._budget)
        self._where = stalls.Whereabouts(job, self._group, self._stacks)
        self._standstill = standstill.Standstill(job, self._group, self._where)
        self._first = None  # the member that is the process that the supervisor started
        self._from = None  # the member whose event is handled
        self._waiting = []  # the members that wait for an answer of the harness
        self._pending = None  # a look of the lead that waits for those of the others
        self._is_ready = False  # a rank has made its first step
        self._hooked = {}  # framework -> whether all of its imported modules could be changed
        self._lowest_fd = None  # that a script must not close
        self._began = job.clock()
        self._verdict = None  # (end, message), as the first process reported it
        self._leave_by = None  # when the process must have ended after that
        self._made_its_steps = self._failed_at_exit = self._told_to_end = False
        self._ended_at = None  # when it had made its last step and reported its end, before its process ended
        self._why = ""  # why no step of a program that ended was seen
        self._setup_s = self._ran_s = self._ran_on_s = 0.0

    # -------------------------------------------------------------- start

    def open(self):
        if self._program is None:
            self._open_script()
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        name = "harness-%d-%s" % (os.getpid(), os.urandom(8).hex())
        self._socket.bind("\0" + name)
        self._socket.listen(group.MOST)
        self._socket.setblocking(False)
        self._job.listen(self._socket.fileno(), self._accept)
        names = ["runpy", *hooks.modules(self._steps_are), *self._steps_are.split(":")[:-1]]
        child.let_agent_in(self._job.root, self._program, (name, self._stacks.fd), names)
        command = child.command_of(self._job.root, self._program, self._job.monitor.cards)
        self._began = self._job.clock()
        try:
            self._job.start(command)
        except OSError as error:
            why = "%s is not in this image" % command[0] if error.errno == 2 else os.strerror(error.errno)
            raise ending.Missing("cannot start %s: %s" % (command[0], why))

    def _open_script(self):
        events_fd, events = os.pipe()
        answers, answers_fd = os.pipe()
        os.set_blocking(events_fd, False)
        inherited = (libc.raised(events), libc.raised(answers), self._table_fd, self._stacks.fd)
        self._lowest_fd = min(inherited)
        self._job.start(child.own_command(self._job.root, *map(str, inherited)), inherited)
        os.close(inherited[0])
        os.close(inherited[1])
        self._first = group.Member(events_fd, answers_fd, self._job.child.pid)
        self._take_in(self._first)
        self._job.listen(events_fd, functools.partial(self._heard_from, self._first))

    # -------------------------------------------------------------- members

    def _accept(self):
        member = group.accepted(self._socket, is_launched=bool(self._launcher))
        if member is not None:
            self._job.listen(member.fd, functools.partial(self._heard_from, member))

    def _heard_from(self, member):
        try:
            data = wire.read_available(member.fd)
        except OSError:
            data = b""
        if data == b"":
            self._dismiss(member)
            for _ in range(GONE_TURNS):
                self._look_after(member)
                if not member.lives:
                    break
                time.sleep(GONE_PAUSE_S)
        self._job.output.event_bytes += len(data or b"")
        self._from = member
        try:
            for line in member.lines.feed(data or b""):
                event = json.loads(line.decode("ascii"))
                getattr(self, "_on_" + event.pop("type"))(**event)
        except (ValueError, AttributeError, TypeError, KeyError, RecursionError, OSError):
            if member is self._first:
                raise
            self._dismiss(member)  # it is not the agent that speaks
        return bool(data)

    def _dismiss(self, member):
        self._job.mute(member.fd)
        member.hung_up_at = self._job.clock()
        if member is self._first:
            self._where.is_replaced = self._where.is_replaced or self._job.child.is_another_program()

    def drain(self):
        for member in self._group.members:
            self._hear_out(member)

    def _hear_out(self, member):
        while self._job.hears(member.fd) and self._heard_from(member):
            continue

    def _on_join(self, kind, number, world, birth, tells):
        member, members = self._from, self._group.members
        for each in members:
            self._look_after(each)
        self._from = member
        is_early = kind == "line" and not hooks.may_make_none(self._hooked)
        if len(members) >= group.MOST or is_early or member in members:
            self._job.mute(member.fd)
            member.link.close()
            return
        member.number, member.world, member.birth, member.is_silent = number, world, birth, tells
        if member.pid == self._job.child.pid:
            self._first = member
        self._take_in(member)
        fds = array.array("i", [member.table_fd])
        member.link.sendmsg([b"table\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])

    def _take_in(self, member):
        """Make a process a member, with a table: that of the rank in whose place it comes, if there is one."""
        member.is_first = member is self._first
        before = None if member.is_first else self._group.predecessor(member)
        if member.is_first:
            member.table_fd, member.table = self._table_fd, self.table
        elif before is not None:
            member.table_fd, member.table, member.metrics = before.table_fd, before.table, before.metrics
            if before.failure or self._group.is_new(member.pid, self._job.clock()):
                self._group.forgive()
            self._group.members.remove(before)
        else:
            member.table_fd = samples.shared_file("samples", samples.table_bytes(self._job.rows))
            member.table = samples.Table(member.table_fd, self._job.rows, self._job.stride)
        self._group.members.append(member)
        self._job.workers.ranks.add(member.pid)

    def _look_after(self, member):
        """Note the death of a member, and how it died if its parent has not yet asked."""
        if not member.lives or not group.is_gone(member.pid):
            return
        death = group.death_of(member.pid)
        member.ended_at = self._job.clock()
        self._hear_out(member)
        if death is not None:
            is_seen_late = death.signal not in (None, signal.SIGTERM, signal.SIGABRT)
            self._fail(member, death, self._job.clock() - (SEEN_S if is_seen_late else 0.0))
        self._group.elect()

    def _fail(self, member, death, at):
        """Note how a member died that did not tell that itself."""
        if member.failure is None and not member.is_first:
            place = ending.place_after(member.steps, self._budget) if member.has_stepped else "before the first step"
            member.fail(ending.of_death(death, place, not member.has_stepped, self._job.oom.killed()), at, death)

    def _on_lost(self, pid, status):
        """Note the death of a member for which its parent has waited, so that nobody else can ask how it died."""
        for member in self._group.members:
            if member.pid == pid:
                self._fail(member, child.death_by(status), member.hung_up_at or self._job.clock())

    def answered(self, answer):
        """Answer the members that wait for the harness: the lead, and those that came while all were parked."""
        waiting, self._waiting = self._waiting, []
        for member in waiting:
            member.answer(answer)

    # -------------------------------------------------------------- events of a step

    def _on_hooked(self, hook, changed):
        self._hooked[hook] = self._hooked.get(hook, True) and changed

    def _on_ready(self, setup_s, first_step_s, probes, metrics, about=(), **steps):
        member = self._from
        member.about, member.has_stepped = dict(about), True
        member.metrics += [name for name in metrics if name not in member.metrics]
        is_ready, self._is_ready = self._is_ready, True
        self._group.elect()
        self._see_ranks()
        if is_ready and not self._job.is_parked and not (self._job.may_be_ready_again and member is self._group.lead):
            member.answer("go")
            return
        self._waiting.append(member)
        if self._job.is_parked:
            return
        self._setup_s = setup_s or 0.0
        self._job.drain_output()  # the process waits, so this is its complete output so far
        self.columns = {"step_s": 0}
        self.columns.update((name, samples.COLUMNS.index(name)) for name in probes)
        self._add_metrics()
        first_step_s = first_step_s if member.is_first else self._job.clock() - self._began
        self._job.ready(setup_s, first_step_s, [PROBES[name] for name in probes if PROBES[name]], **steps)
        if self._job.order.get("slices"):
            self._job.park()
        else:
            self.answered("go")

    def _see_ranks(self):
        """Let the job's table be that of its only rank, or one of its own."""
        lead, is_several = self._group.lead, self._group.is_several
        if is_several and self._group.table is None:
            self._group.make_table(self._job.sent)
        table = self._group.table if is_several else lead.table
        if table is not self.table:
            self.table = table
            self._job.monitor.move_to(table)
        names = dict.fromkeys(name for each in self._group.ranks for name in each.metrics)
        self._metrics = list(names)[: samples.MOST_METRICS]
        self._add_metrics()
        self._group.refresh()

    def _add_metrics(self):
        self.columns.update((name, len(samples.COLUMNS) + place) for place, name in enumerate(self._metrics))

    def _on_metric(self, name):
        if name not in self._from.metrics:
            self._from.metrics.append(name)
        if self._from.has_stepped:
            self._see_ranks()

    def _on_look(self, step, look, last):
        member, step = self._from, min(step, self._budget)  # one that was started again may have gone beyond the last
        member.looks[step] = look
        self._job.peak_kib = max(self._job.peak_kib, look.get("rss_peak_kib") or 0)
        if member is self._group.lead:
            self._waiting.append(member)
            self._pending = Pending(step, last, self._job.clock() + OTHERS_S)
        else:
            member.answer("stop" if last else "go")
        self._forward(self._job.clock())

    def _forward(self, now):
        """Take the look of the lead for the job's, once the other ranks have taken theirs or need too long."""
        if self._pending is None or self._job.asked_at is not None:
            return
        step, last, until = self._pending
        if now < until and self._group.late():
            return
        self._pending = None
        self.refresh(is_whole=True)
        self._job.look(step, self._group.look(step), last)
        if last:
            self.answered("stop")  # it had to wait, so that the look found its GPU memory still in use

    def _on_due(self):
        """Let all ranks look after the same step: one that waits for another that looks could not."""
        is_lead = self._from is self._group.lead
        looks_now = not self._group.is_several or (is_lead and self._group.lead.table.header[samples.STOP])
        if is_lead and not looks_now:
            self._group.ask_looks()
        self._from.answer("go" if looks_now else "on")

    def _on_over(self):
        is_lead = self._from is self._group.lead
        if is_lead:
            self._job.census.look()  # what it holds after its steps; the last look follows at its end
        self._from.answer("go" if is_lead else "on")

    def _on_parked(self):
        self._waiting.append(self._from)
        if not self._job.is_parked:
            self._job.park()

    # -------------------------------------------------------------- events of an end

    def _on_failed(self, exits=False, at=None, waits=False, **event):
        """End the trial. `exits`: the program called sys.exit without a reason; before the first step, the last line of
        the output (as printed by argparse) is then taken for the reason."""
        member = self._from
        if exits and event["setup"]:
            self._job.drain()
            event["message"] = ending.placed(event["message"], self._last_words())
        if member.failure is None:
            others = [each for each in self._group.members if each is not member]
            is_setup = event["setup"] and not any(each.has_stepped for each in others)
            failure = ending.of_failure(dict(event, setup=is_setup), self._job.oom.killed())
            member.fail(failure, at or self._job.clock())
        if member.is_first:
            # A process that was forked in the setup speaks for its parent, which may lead already.
            event["setup"] = event["setup"] and self._group.lead in (None, member)
            self._job.components.look()
            self._job.memory_error = event["oom"]
            self._leave(ending.of_failure(event, self._job.oom.killed()))
        if waits:
            member.answer("go")

    def _on_unseen(self):
        if any(each.has_stepped for each in self._group.members if each is not self._from):
            self._from.answer("stop")
            return
        self._why = ending.UNSEEN + self._why_unseen()
        if self._steps_are == "auto":
            self._job.remedy = ""
        else:
            self._leave(("setup", self._why), "no_step")
        self._from.answer("go" if self._steps_are == "auto" else "stop")

    def _on_left(self):
        self._from.is_silent = False

    def _on_ended(self, end, cut=False, at=0.0, run_s=0.0, ran_on_s=0.0):
        """End the trial. `cut`: the agent stopped the program before its own end, so that this end does not count."""
        member = self._from
        member.is_silent, member.ended_well = False, not cut
        if cut:
            if member.is_first and not self._group.is_several:
                self._leave_after_steps(end)
                member.answer("stop")
            elif member is self._group.lead:
                self._leave_after_steps(end)
                self._end(*self._verdict)  # the others are killed where they are
            return
        if not member.is_first:
            return
        self._made_its_steps = self._verdict is None
        self._ran_s, self._ran_on_s, self._ended_at = run_s, ran_on_s, at
        if self._program is None:
            self._leave_after_steps(end)
        elif self._why:
            self._job.output.stepped(is_whole=True)
            self._leave((end, self._why), "no_step")
        elif self._group.made_all(end):
            self._leave(("completed", ""))
        else:
            self._leave(("stopped", ending.SHORT % (self._job.steps(), self._budget)), "own_end")

    def _on_teardown(self, **event):
        if self._job.wrapper is not None:
            self._job.notes.append(event["message"].splitlines()[-1])
        elif self._made_its_steps:
            self._failed_at_exit = True
            self._verdict = ending.of_failure(dict(event, setup=False), self._job.oom.killed())

    def _on_file(self, name, text):
        self._job.send_file(name, text)

    def _leave_after_steps(self, end):
        """Leave with an end that the time limit may have caused."""
        if self.table.header[samples.STOP] == samples.END and end == "stopped":
            self._leave((end, "time limit reached after %d steps" % self._job.steps()), "timeout")
        else:
            self._leave((end, ""))

    def _leave(self, verdict, shortfall=""):
        """Record how the first process ended, and start waiting for its end.

        Only the first report counts: after a failure in a forked process, the parent may still report a good end.
        """
        if self._verdict is None:
            self._verdict, self._job.shortfall = verdict, shortfall
            self._leave_by = self._job.clock() + self._ending_s()

    def _ending_s(self):
        """Return the seconds that its threads, children and teardown have to end. Inside a wrapping program, all of
        them are slow, but hardly slower than the setup was."""
        limit_s = AFTER_END_S if self._made_its_steps else standstill.AFTER_FAILURE_S
        return limit_s if self._job.wrapper is None else max(limit_s, self._setup_s)

    # -------------------------------------------------------------- time

    @property
    def beat_s(self):
        return BEAT_S if len(self._group.members) > 1 else float("inf")

    def refresh(self, is_whole=False):
        self._group.refresh()
        if is_whole and self._group.is_several:
            self._group.merge(self._metrics)

    def tick(self, now):
        over = self.table.header[samples.OVER]
        if over and self._verdict is None and now - over > max(LEAST_GRACE_S, over - self._began):
            self._cut(now)
        self._forward(now)
        if len(self._group.members) > 1:
            for member in self._group.members:
                self._look_after(member)
        if self._program is not None:
            ended = self._standstill.ended(now, self.table, self._verdict is not None)
            if ended is not None:
                self._end(*ended[:2], stacks=ended[2], waits=True)
        if self._job.done is None and self._leave_by is not None and now > self._leave_by:
            self._end_late(now)

    def _end_late(self, now):
        """End a process that does not end by itself after its last step."""
        job, late = self._job, "the process did not end within %.0f s" % self._ending_s()
        if self._made_its_steps and not self._failed_at_exit and job.wrapper is None:
            self._end_hung("%s: %s" % (ending.AT_EXIT, late), at_exit=True)
            return
        late += " of its last step"
        if job.wrapper is not None and not self._told_to_end:
            self._told_to_end = True
            self._leave_by = now + min(job.wrapper.after_end_s, max(AFTER_END_S, job.order["timeout_s"]))
            job.notes.append(late + ": ended by SIGTERM, so that the program around it can report")
            job.child.terminate()
            return
        job.notes.append((late if job.wrapper is None else "it did not end after SIGTERM") + ": killed")
        self._end(*self._verdict, at_exit=self._failed_at_exit)

    def overdue(self, now):
        """Handle the time limit: end the scenario between two steps if it makes any, else find where it hangs."""
        if self._verdict is not None:
            return
        limit_s = self._job.order["timeout_s"]
        if self.table.header[samples.OVER]:
            self._cut(now)
        elif self._in_setup():
            self._end_setup(limit_s)
        else:
            self.set_stop(samples.END)
            if self._job.is_stuck(now):
                self._end_hung("%s: no progress at the time limit of %g s" % (self._place(), limit_s))

    def _end_setup(self, limit_s):
        """End a trial whose time is over before its first step."""
        if self._program is not None and self._where.is_replaced:
            self._end_replaced()
            return
        stacks = self._where.ask()
        if self._program is None:
            message = "setup did not finish in %g s%s" % (limit_s, self._where.place(stacks))
        else:
            why, self._job.shortfall = self._why_unseen(), "no_step"
            if self._steps_are == "auto":
                self._job.remedy = "longer"
            message = "no step was seen in %g s%s: %s" % (limit_s, self._where.place(stacks), why)
        self._end("setup", message, stacks=stacks)

    def _cut(self, now):
        """End a program that has made its steps and is busy with something else."""
        if self._job.done is None:
            self._job.busy_s = now - self.table.header[samples.OVER]
            self._end("completed", "")

    # -------------------------------------------------------------- slices

    def set_stop(self, value):
        """Ask the processes to END or PARK at the next step boundary, or with 0 to go on."""
        self.table.header[samples.STOP] = value
        self._group.set_stop(value)

    def park_soon(self):
        if self._verdict is None and not self.table.header[samples.STOP]:
            self.set_stop(samples.PARK)

    def catch_up(self):
        """Return 0: no process makes a step while all are parked."""
        return 0

    # -------------------------------------------------------------- the end

    def died(self, death):
        job, lead = self._job, self._group.lead
        others_step = lead is not None and not lead.is_first
        if self._verdict is None and (self._launcher or others_step):
            self._job_died(death)
            return
        if self._ended_at is not None:
            job.end_s = job.clock() - self._ended_at
        if self._verdict is None:
            self._died_without_a_word(death)
        elif self._made_its_steps and not self._failed_at_exit and job.wrapper is None and ending.is_bad(death):
            end, message = ending.of_death(death, ending.AT_EXIT, False, job.oom.killed())
            stacks = self._stacks.written()
            self._end(end, message + self._where.place(stacks), death=death, stacks=stacks, at_exit=True)
        else:
            if death.signal is not None and not self._told_to_end:
                job.notes.append("after its last step: killed by %s" % ending.signal_name(death.signal))
            self._end(*self._verdict, at_exit=self._failed_at_exit)
        if self._program is not None and job.end_s is not None:
            job.run_s = self._ran_s + job.end_s
            job.end_s = None if self._why else self._ran_on_s + job.end_s

    def _died_without_a_word(self, death):
        in_setup, is_lost = self._in_setup(), self.table.header[samples.LOST]
        if self._program is not None:
            if self._steps_are == "auto" and death.exit_code == 0 and in_setup:
                self._take_whole(death, ending.LEFT)
                return
            if death.exit_code == 0 and not in_setup and not is_lost:
                self._job_died(death)  # by os._exit, as some programs end their threads
                return
            if self._where.is_replaced and death.signal is None:
                self._end_replaced(death)
                return
        if is_lost:
            self._end("infrastructure", ending.LOST % (self._job.steps(), self._lowest_fd), death=death)
            return
        unmade = "setup" if self._program is None else ending.before_steps(self._steps_are)
        place = unmade if in_setup else self._place()
        end, message = ending.of_death(death, place, in_setup, self._job.oom.killed())
        stacks = self._stacks.written()
        self._end(end, message + self._where.place(stacks), death=death, stacks=stacks)

    def _job_died(self, death):
        """End the trial of a launcher, or of a program whose other processes made the steps."""
        job, lead = self._job, self._group.lead
        steps = job.steps() if lead is not None else 0
        if ending.is_bad(death):
            place = ending.place_after(steps, self._budget) if steps else ending.before_steps(self._steps_are)
            end, message = ending.of_death(death, place, not steps, job.oom.killed(), self._last_words())
            self._end(end, message, death=death)
            return
        job.run_s = job.clock() - self._began
        if steps:
            job.end_s = job.clock() - self.table.header[samples.STARTED]
            is_whole = steps >= self._budget
            job.shortfall = "" if is_whole else "own_end"
            if self._pending is None and steps not in self._group.looked and lead.looks:
                lead.looks[steps] = lead.looks[max(lead.looks)]
                self._pending = Pending(steps, True, 0.0)
                self._forward(job.clock())
            message = "" if is_whole else ending.SHORT % (steps, self._budget)
            self._end("completed" if is_whole else "stopped", message)
            return
        why = ending.UNSEEN + self._why_unseen()
        if self._steps_are == "auto":
            self._take_whole(death, why)
        else:
            job.shortfall = "no_step"
            self._end("setup", why)

    def _take_whole(self, death, why):
        """End the trial of a launcher without ranks, or of a program that left without a word and without a step
        (os._exit, os.exec): its whole run is the one step, of which only what shows from outside is known."""
        job = self._job
        job.run_s = job.clock() - self._began
        self.table.header[samples.STEPS] = 1
        self.table.column(samples.COLUMNS.index("rss_kib"))[0] = death.peak_rss_kib or float("nan")
        job.ready(None, None, ["rss"])
        job.output.stepped(is_whole=True)
        job.look(1, {"cpu_s": processes.children_s(), "rss_peak_kib": death.peak_rss_kib or None}, last=True)
        job.shortfall, job.remedy = "no_step", ""
        self._end("completed", why)

    def _end_replaced(self, death=None):
        self._job.shortfall, self._job.remedy = "no_step", "command"
        self._end("setup", ending.REPLACED, death=death)

    def _end_hung(self, message, at_exit=False):
        stacks = self._where.ask()
        self._end("hang", message + self._where.place(stacks), stacks=stacks, at_exit=at_exit)

    def leave(self):
        self._end("stopped", "")

    def _end(self, end, message, death=None, stacks="", at_exit=False, *, waits=False):
        """Record how the trial ended. If a rank failed before the job did, its failure is that of the job, if that
        ended badly, `waits` for the rank, or has a launcher, which would have ended it. Any other program may tolerate
        it, and that must not depend on whether the agent ended the program first: a line of the output tells."""
        process = self._job.child
        is_bad, is_cut = end not in ending.WELL, process is not None and process.death is None
        if not at_exit and end != "infrastructure" and self._job.done is None:
            first = self._group.end_of_first(is_bad, self._stacks.written())
            is_unknown = first is not None and first[0] == "infrastructure"
            if first is not None and not is_bad and not (is_cut and (self._launcher or is_unknown or waits)):
                if not is_unknown and (first[2] is None or first[2].signal in (None, *children.FATAL)):
                    self._job.output.add((TOLERATED % first[1].rpartition("\n")[2]).encode("utf-8", "replace"))
            elif first is not None and end == "hang" and not is_unknown and self._where.waits_again():
                message += "; all ranks had been started again after this failure: " + first[1].rpartition("\n")[2]
            elif first is not None:
                end, message, death = first
        self._job.end(end, message, death=death, stacks=stacks, at_exit=at_exit)

    def about(self):
        """Return the fields of `done` about what the processes returned, and about the ranks."""
        fields, failed = {"not_finite": self.table.not_finite(self._metrics)}, self._group.first_failure()
        if self._program is not None:
            fields["failed_ago_s"] = self._job.clock() - failed.failed_at if failed is not None else None
        if self._group.is_several:
            self._group.add_not_finite(fields["not_finite"])
        if self._group.is_several or (self._program is not None and "NODE_RANK" in os.environ):
            fields["ranks"] = self._group.facts()
        return fields

    # -------------------------------------------------------------- where it stands

    def stepping_pid(self):
        return self._group.lead.pid if self._group.lead is not None else self._job.child.pid

    def resident_kib(self):
        return self.table.last(samples.COLUMNS.index("rss_kib"))

    def printed(self, data):
        """Do nothing: the processes read themselves what they print."""

    def _place(self):
        return ending.place_after(self._job.steps(), self._budget)

    def _in_setup(self):
        return self.table.header[samples.STARTED] == 0

    def _last_words(self):
        return ending.last_words(self._job.output.tail())

    def _why_unseen(self):
        self._job.remedy = "function"
        if not self._hooked and (self._launcher or len(self._stacks.by_pid) > 1):
            return "none of its processes reported one"  # those that have not joined did not tell what they import
        return hooks.why_unseen(self._steps_are, self._hooked)
