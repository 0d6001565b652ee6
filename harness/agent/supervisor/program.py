"""Supervises a program (scenario/program_run.py) and the ranks among its processes (group.py). Unlike a script, a
program may make no step that the agent sees: `why_unseen` then explains why.

The ranks join over a socket. Each takes its looks by itself and is answered at once, but for the lead, whose looks are
those of the job: they go to the harness.
"""

import array
import collections
import functools
import json
import os
import signal
import socket
import struct
import sys
import time

from .. import ending, samples, wire
from ..probes import processes
from ..scenario.entering import VARIABLE
from ..scenario.hooks import MAY_MAKE_NONE, modules
from . import group, standing
from .script import AFTER_FAILURE_S, ScriptWatch
from .trial_watch import Watch

OTHERS_S = 0.5  # that a look of the lead waits for those of the other ranks
OF_NODES = {
    "{nodes}": ("NNODES", "1"), "{node}": ("NODE_RANK", "0"),
    "{address}": ("MASTER_ADDR", "127.0.0.1"), "{port}": ("MASTER_PORT", "29500"),
}  # fmt: skip
"""Words of a launcher, with the variables of a trial on several nodes, and their values on one."""
STILL_S, STILL_SHARE, STILL_BYTES = 30.0, 0.05, 16384  # of one processor; a second
MISSED_SHARE = 0.2  # of the time limit: for so long, and 2 STILL_S, a job is still whose ranks wait for one that lives
BEAT_S = 0.05  # while there are several ranks
GONE_TURNS, GONE_PAUSE_S = 20, 0.001  # between the end of a conversation and the end of its process
CREDENTIALS = struct.Struct("3i")
SEEN_S = 0.05  # a death by a signal is seen up to so much later than the failures of those who notice it

Pending = collections.namedtuple("Pending", "step last until")
Still = collections.namedtuple("Still", "since at cpu_s moved_bytes")


class ProgramWatch(ScriptWatch):
    """Watches an unmodified program. If none of its steps is seen, the message says why."""

    def __init__(self, job, root, outbox, gpus):
        ScriptWatch.__init__(self, job, root, outbox, gpus)
        self._steps_are, self._budget = job["program"]["steps_are"], job["looks"][-1]
        self._launcher = job["program"].get("launcher") or []
        self._group = group.Group(self.rows, self.stride, self._budget)
        self._first = None  # the member that is the process that the supervisor started
        self._from = None  # the member whose event is handled
        self._waiting = []  # the members that wait for an answer of the harness
        self._pending = None  # a look of the lead that waits for those of the others
        self._is_ready = False  # a rank has made its first step
        self._hooked = {}  # framework -> whether all of its imported modules could be changed
        self._began = self.clock()
        self._why = ""
        self._stacks_by_pid = {}  # of all ranks, once they were asked for
        self._ran_s = self._ran_on_s = 0.0
        self._progress = None, self._began  # the steps of all ranks, and since when
        self._still = None  # for how long the job has done nothing, as it was last looked at

    # -------------------------------------------------------------- start

    def open(self):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        name = "harness-%d-%s" % (os.getpid(), os.urandom(8).hex())
        self._socket.bind("\0" + name)
        self._socket.listen(group.MOST)
        self._socket.setblocking(False)
        self.listen(self._socket.fileno(), self._accept)
        hook = os.path.join(self.root, "harness_agent", "hook")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (hook, os.environ.get("PYTHONPATH"))))
        os.environ[VARIABLE] = "\t".join([str(os.getpid()), name, str(self._stacks_fd), *self._entered()])
        self._began = self.clock()
        command = self._command()
        try:
            self.start(command)
        except OSError as error:
            why = "%s is not in this image" % command[0] if error.errno == 2 else os.strerror(error.errno)
            self.end("setup", "cannot start %s: %s" % (command[0], why))

    def _entered(self):
        """Return the program, and the modules whose import lets the agent into a process (hook/sitecustomize.py)."""
        program = self.job["program"]
        names = ["runpy", *modules(self._steps_are)]
        if ":" in self._steps_are:
            names.append(self._steps_are.partition(":")[0])
        path = program["path"] and os.path.join(self.root, program["path"])
        return path or "-m " + program["module"], ",".join(name for name in names if name != "__main__")

    def _command(self):
        program = self.job["program"]
        if not self._launcher:
            # -u: output before a segmentation fault must not be lost in a buffer.
            return [sys.executable, "-B", "-u", os.path.join(self.root, "start.py"), "rank", *program["args"]]
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        filled = {"{python}": sys.executable, "{gpus}": str(max(1, self.monitor.cards))}
        filled.update((word, os.environ.get(name, alone)) for word, (name, alone) in OF_NODES.items())
        for name, value in filled.items():
            self._launcher = [word.replace(name, value) for word in self._launcher]
        words = [os.path.join(self.root, program["path"])] if program["path"] else ["-m", program["module"]]
        return [*self._launcher, *words, *program["args"]]

    # -------------------------------------------------------------- members

    def _accept(self):
        link, _ = self._socket.accept()
        link.setblocking(False)
        pid = CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))[0]
        member = group.Member(link, pid)
        self.listen(member.fd, functools.partial(self._heard_from, member))

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
        self.output.event_bytes += len(data or b"")
        self._from = member
        try:
            for line in member.lines.feed(data or b""):
                event = json.loads(line.decode("ascii"))
                getattr(self, "_on_" + event.pop("type"))(**event)
        except (ValueError, AttributeError, TypeError, KeyError):
            if member is self._first:
                raise
            self._dismiss(member)  # it is not the agent that speaks
        return bool(data)

    def _dismiss(self, member):
        self.mute(member.fd)
        member.hung_up_at = self.clock()
        if member is self._first:
            self._replaced = self._replaced or self._is_another_program()

    def drain(self):
        Watch.drain(self)
        for member in self._group.members:
            while member.fd in self._selector.get_map() and self._heard_from(member):
                continue

    def _on_join(self, kind, number, world, birth, tells):
        member, members = self._from, self._group.members
        for each in members:
            self._look_after(each)
        self._from = member
        if (
            len(members) >= group.MOST
            or (kind == "line" and not MAY_MAKE_NONE.issuperset(self._hooked))
            or member in members
        ):
            self.mute(member.fd)
            member.link.close()
            return
        member.number, member.world, member.birth, member.is_silent = number, world, birth, tells
        member.is_first = member.pid == self.child.pid
        before = None if member.is_first else self._group.predecessor(member)
        if member.is_first:
            self._first, member.table_fd, member.table = member, self._table_fd, self.table
        elif before is not None:
            member.table_fd, member.table, member.metrics = before.table_fd, before.table, before.metrics
            if before.failure or self._group.is_new(member.pid, self.clock()):
                self._group.forgive()
            members.remove(before)
        else:
            member.table_fd = samples.shared_file("samples", samples.table_bytes(self.rows))
            member.table = samples.Table(member.table_fd, self.rows, self.stride)
        members.append(member)
        fds = array.array("i", [member.table_fd])
        member.link.sendmsg([b"table\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        self.workers.ranks.add(member.pid)

    def _look_after(self, member):
        """Note the death of a member, and how it died if its parent has not yet asked."""
        if not member.lives or not group.is_gone(member.pid):
            return
        death = group.death_of(member.pid)
        member.ended_at = self.clock()
        while member.fd in self._selector.get_map() and self._heard_from(member):
            continue
        if death is not None and member.failure is None and not member.is_first:
            place = ending.place_after(member.steps, self._budget) if member.has_stepped else "before the first step"
            at = self.clock() - (SEEN_S if death.signal not in (None, signal.SIGTERM, signal.SIGABRT) else 0.0)
            member.fail(ending.of_death(death, place, not member.has_stepped, self.oom.killed()), at, death)
        self._group.elect()

    def answered(self, answer):
        """Answer the members that wait for the harness: the lead, and those that came while all were parked."""
        waiting, self._waiting = self._waiting, []
        for member in waiting:
            self._answer(member.fd, answer)

    def _on_parked(self):
        self._waiting.append(self._from)
        if not self._parked:
            self.park()

    # -------------------------------------------------------------- events of the members

    def _on_hooked(self, hook, changed):
        self._hooked[hook] = self._hooked.get(hook, True) and changed

    def _on_ready(self, setup_s, first_step_s, probes, metrics, about, **steps):
        member = self._from
        member.about = about
        is_ready, self._is_ready = self._is_ready, True
        member.has_stepped = True
        member.metrics += [name for name in metrics if name not in member.metrics]
        self._group.elect()
        self._see_ranks()
        if self._parked:
            self._waiting.append(member)
        elif is_ready and (self._ready is None or member is not self._group.lead):
            self._answer(member.fd, "go")
        else:
            self._waiting.append(member)
            first_step_s = first_step_s if member.is_first else self.clock() - self._began
            ScriptWatch._on_ready(self, setup_s, first_step_s, probes, list(self._metrics), **steps)

    def _see_ranks(self):
        """Let the job's table be that of its only rank, or one of its own."""
        lead, is_several = self._group.lead, self._group.is_several
        if is_several and self._group.table is None:
            self._group.make_table(self._sent)
        table = self._group.table if is_several else lead.table
        if table is not self.table:
            self.table = table
            self.monitor.move_to(table)
        names = dict.fromkeys(name for each in self._group.ranks for name in each.metrics)
        self._metrics = list(names)[: samples.MOST_METRICS]
        self.columns.update((name, len(samples.COLUMNS) + place) for place, name in enumerate(self._metrics))
        self._group.refresh()

    def _on_metric(self, name):
        if name not in self._from.metrics:
            self._from.metrics.append(name)
        if self._from.has_stepped:
            self._see_ranks()

    def _on_look(self, step, look, last):
        member, step = self._from, min(step, self._budget)  # one that was started again may have gone beyond the last
        member.looks[step] = look
        if member is self._group.lead:
            self._waiting.append(member)
            self._pending = Pending(step, last, self.clock() + OTHERS_S)
            self._forward(self.clock())
        else:
            self._answer(member.fd, "stop" if last else "go")
            self._forward(self.clock())

    def _forward(self, now):
        """Take the look of the lead for the job's, once the other ranks have taken theirs or need too long."""
        if self._pending is None or self.asked_at is not None:
            return
        step, last, until = self._pending
        if now < until and self._group.late():
            return
        self._pending = None
        self._merge()
        self.look(step, self._group.look(step), last)
        if last:
            self.answered("stop")  # it had to wait, so that the look found its GPU memory still in use

    def _merge(self):
        if self._group.is_several:
            self._group.refresh()
            self._group.merge(self._metrics)

    def _send_samples(self):
        self._merge()
        ScriptWatch._send_samples(self)

    def _on_due(self):
        """Let all ranks look after the same step: one that waits for another that looks could not."""
        is_lead = self._from is self._group.lead
        looks_now = not self._group.is_several or (is_lead and self._group.lead.table.header[samples.STOP])
        if is_lead and not looks_now:
            self._group.ask_looks()
        self._answer(self._from.fd, "go" if looks_now else "on")

    def _on_over(self):
        is_lead = self._from is self._group.lead
        if is_lead:
            self.census.look()  # what it holds after its steps; the last look follows at its end
        self._answer(self._from.fd, "go" if is_lead else "on")

    def _on_unseen(self):
        if any(each.has_stepped for each in self._group.members if each is not self._from):
            self._answer(self._from.fd, "stop")
            return
        self._why = "the program ended, and no step was seen: " + self._why_unseen()
        if self._steps_are == "auto":
            self.remedy = ""
        else:
            self._leave(("setup", self._why), "no_step")
        self._answer(self._from.fd, "go" if self._steps_are == "auto" else "stop")

    def _on_left(self):
        self._from.is_silent = False

    def _on_ended(self, end, cut, at=0.0, run_s=0.0, ran_on_s=0.0):
        """End the trial. `cut`: the agent stopped the program before its own end, so that this end does not count."""
        member = self._from
        member.is_silent, member.ended_well = False, not cut
        if cut:
            if member.is_first and not self._group.is_several:
                self._leave_after_steps(end)
                self._answer(member.fd, "stop")
            elif member is self._group.lead:
                self._leave_after_steps(end)
                self.end(*self._verdict)  # the others are killed where they are
            return
        if not member.is_first:
            return
        self._made_its_steps = self._verdict is None
        self._ran_s, self._ran_on_s, self._ended_at = run_s, ran_on_s, at
        if self._why:
            self.output.all_counts()
            self._leave((end, self._why), "no_step")
        elif self._made_all(end):
            self._leave(("completed", ""))
        else:
            self._leave(("stopped", SHORT % (self.steps(), self._budget)), "own_end")

    def _made_all(self, end):
        if self._group.lead is None or self._group.lead.is_first:
            return end == "completed"
        return self._group.lead.steps >= self._budget

    # -------------------------------------------------------------- time

    def steps(self):
        self._group.refresh()  # ranks may have made steps since this turn began
        return ScriptWatch.steps(self)

    def beat_s(self):
        return BEAT_S if len(self._group.members) > 1 else ScriptWatch.beat_s(self)

    def _turn(self, pause_s):
        self._group.refresh()
        ScriptWatch._turn(self, pause_s)

    def tick(self, now):
        over = self.table.header[samples.OVER]
        if over and self._verdict is None and now - over > max(LEAST_GRACE_S, over - self._began):
            self._cut()
        self._forward(now)
        if len(self._group.members) > 1:
            for member in self._group.members:
                self._look_after(member)
        self._end_early(now)
        ScriptWatch.tick(self, now)

    def _end_early(self, now):
        """End a trial that only waits, because a rank has failed, has ended, or does nothing."""
        steps = sum(member.steps for member in self._group.members), len(self._group.members)
        progress = (*steps, self.table.header[samples.STARTED])
        if progress != self._progress[0] or self.asked_at is not None:
            self._progress, self._still = (progress, now), None
        failed, ranks = self._group.first_failure(), self._group.ranks
        living = [member for member in ranks if member.lives]
        if self._verdict is not None or self.done is not None or now - self._progress[1] <= AFTER_FAILURE_S:
            return
        if failed is not None and not failed.is_first and (living or not ranks):
            is_rank = (failed.number, failed.birth) != (None, None)
            if now - failed.failed_at > AFTER_FAILURE_S and (living or (is_rank and self._still_s(now) >= STILL_S)):
                self.end("crash", "")
        elif self.table.header[samples.OVER]:
            return
        elif 0 < len(living) < len(ranks) and all(member.waits_s(now) > AFTER_FAILURE_S for member in living):
            if self._group.vanished() is not None:
                self.end("stopped", "")
            else:
                stacks = self._ask_stacks()
                self.end("hang", self._place_now() + ": no progress" + self._place(stacks), stacks=stacks)
        elif self._still_s(now) >= max(2 * STILL_S, MISSED_SHARE * self.job["timeout_s"]):
            self._end_missed(now)

    def _still_s(self, now):
        """Return for how long the job has used hardly any processor time, and has moved hardly any data: it may be
        loading what it needs, but not like this."""
        before = self._still
        if before is None or now - before.at >= STILL_S:
            cpu_s, moved = processes.children_s(), processes.moved_bytes()
            is_still = (
                before is not None
                and None not in (moved, before.moved_bytes)
                and cpu_s - before.cpu_s < STILL_SHARE * (now - before.at)
                and abs(moved - before.moved_bytes) < STILL_BYTES * (now - before.at)
            )
            self._still = Still(before.since if is_still else now, now, cpu_s, moved)
        return self._still.at - self._still.since

    def _end_missed(self, now):
        """End a trial that does nothing, if ranks wait for one that does nothing. On several nodes, that one may be on
        another, and busy."""
        still_s, self._still = self._still_s(now), None
        if "NODE_RANK" in os.environ or not (self._launcher or len(processes.descendants()) > 1):
            return
        stacks = self._ask_stacks()
        words, is_sure, _ = self._standing()
        if is_sure:
            why = "no progress for %.0f s: %s" % (still_s, words)
            end, place = ("hang", self._place_now()) if self._group.ranks else ("setup", "before the first step")
            self.end(end, "%s: %s" % (place, why), stacks=stacks)

    def overdue(self, now):
        if self.table.header[samples.OVER] and self._verdict is None:
            self._cut()
        else:
            ScriptWatch.overdue(self, now)

    def stepping_pid(self):
        return self._group.lead.pid if self._group.lead is not None else self.child.pid

    def set_stop(self, value):
        ScriptWatch.set_stop(self, value)
        self._group.set_stop(value)

    def _cut(self):
        """End a program that has made its steps and is busy with something else."""
        if self.done is None:
            self.end("completed", "")

    def died(self, death):
        others_step = self._group.lead is not None and not self._group.lead.is_first
        if self._verdict is None and (self._launcher or others_step):
            self._job_died(death)
            return
        ScriptWatch.died(self, death)
        if self.end_s is not None:
            self.run_s = self._ran_s + self.end_s
            self.end_s = None if self._why else self._ran_on_s + self.end_s

    def _job_died(self, death):
        """End the trial of a launcher, or of a program whose other processes made the steps."""
        steps = self.steps() if self._group.lead is not None else 0
        if ending.is_bad(death):
            place = ending.place_after(steps, self._budget) if steps else "setup"
            end, message = ending.of_death(death, place, not steps, self.oom.killed(), self._last_words())
            self.end(end, message, death=death)
            return
        self.run_s = self.clock() - self._began
        if steps:
            self.end_s = self.clock() - self.table.header[samples.STARTED]
            is_whole = steps >= self._budget
            self.shortfall = "" if is_whole else "own_end"
            if self._pending is None and steps not in self._group.looked and self._group.lead.looks:
                self._group.lead.looks[steps] = self._group.lead.looks[max(self._group.lead.looks)]
                self._pending = Pending(steps, True, 0.0)
                self._forward(self.clock())
            message = "" if is_whole else SHORT % (steps, self._budget)
            self.end("completed" if is_whole else "stopped", message)
            return
        why = "the program ended, and no step was seen: " + self._why_unseen()
        if self._steps_are == "auto":
            self._take_whole(death, why)
        else:
            self.shortfall = "no_step"
            self.end("setup", why)

    def _last_words(self):
        return ending.last_words(self.output.tail())

    def end(self, end, message, death=None, stacks="", at_exit=False):
        """Record how the trial ended. If a rank failed before the job did, its failure is that of the job; not if the
        program ended well by itself, and thus tolerates it."""
        is_bad, is_cut = end not in ending.WELL, self.child is not None and self.child.death is None
        if not at_exit and end != "infrastructure" and (is_bad or is_cut):
            first = self._group.end_of_first(is_bad, self._stacks())
            if first is not None and end == "hang" and first[0] != "infrastructure" and self._waits_again():
                message += "; all ranks had been started again after this failure: " + first[1].splitlines()[-1]
            elif first is not None:
                end, message, death = first
        ScriptWatch.end(self, end, message, death=death, stacks=stacks, at_exit=at_exit)

    def _waits_again(self):
        """Return whether ranks surely wait that a launcher started again after all ranks had ended."""
        if not self._stacks_by_pid or any(each.lives for each in self._group.ranks):
            return False
        _, is_sure, is_again = self._standing()
        return is_sure and is_again

    def _on_failed(self, exits=False, at=None, **event):
        """End the trial. `exits`: the program called sys.exit without a reason; before the first step, the last line of
        the output (as printed by argparse) is then taken for the reason."""
        member = self._from
        if exits and event["setup"]:
            self.drain()
            event["message"] = ": ".join(filter(None, (event["message"], self._last_words())))
        if member.failure is None:
            is_setup = event["setup"] and not any(each.has_stepped for each in self._group.members)
            member.fail(ending.of_failure(dict(event, setup=is_setup), self.oom.killed()), at or self.clock())
        if member.is_first:
            event["setup"] = event["setup"] and self._group.lead is None
            ScriptWatch._on_failed(self, **event)

    def about_output(self):
        """Return the fields of `done` about what the program printed and returned, and about its ranks."""
        fields, failed = ScriptWatch.about_output(self), self._group.first_failure()
        fields["failed_ago_s"] = self.clock() - failed.failed_at if failed is not None else None
        if self._group.is_several:
            for member in self._group.ranks:
                for name, (count, first) in member.table.not_finite(member.metrics).items():
                    before = fields["not_finite"].get(name, [0, first])
                    fields["not_finite"][name] = [before[0] + count, min(before[1], first)]
        if self._group.is_several or "NODE_RANK" in os.environ:
            fields["ranks"] = self._group.facts()
        return fields

    def _peak_rss_kib(self):
        looks = [look for member in self._group.members for look in member.looks.values()]
        peaks = [look.get("rss_peak_kib") or 0 for look in looks]
        return max([*peaks, ScriptWatch._peak_rss_kib(self) or 0]) or None

    # -------------------------------------------------------------- hangs

    def _ask_stacks(self):
        """Return the stacks of the first process, or those of all ranks, each after a line that names it."""
        named = {member.pid: self._group.named(member) for member in self._group.members if member.lives}
        if self._group.ranks and not self._launcher and not self._group.is_several and len(named) <= 1:
            return ScriptWatch._ask_stacks(self)
        unseen = [pid for pid in processes.descendants() if pid not in named and self._writes_stacks(pid)]
        self._stacks_by_pid = {pid: self._stacks_of(pid) for pid in [*named, *unseen][: standing.MOST_STACKS]}
        parts = [
            "%s(pid %d)\n%s" % (named.get(pid, ""), pid, text) for pid, text in self._stacks_by_pid.items() if text
        ]
        return "\n".join(parts)

    def _writes_stacks(self, pid):
        return any("memfd:stacks" in processes.target(each.path) for each in processes.entries_of("/proc/%d/fd" % pid))

    def _place(self, stacks):
        """Return where the program stands: of several ranks, who is missing and who waits."""
        words = self._standing()[0] if self._stacks_by_pid else ""
        return ": " + words if words else ScriptWatch._place(self, stacks)

    def _standing(self):
        places = {pid: ScriptWatch._place(self, text) for pid, text in self._stacks_by_pid.items()}
        return standing.tell(self._group, self._stacks_by_pid, places, self.child.pid, self.clock())

    # -------------------------------------------------------------- no step was seen

    def _setup_overdue(self, limit_s):
        if self._replaced:
            self._end_replaced()
            return
        stacks, why = self._ask_stacks(), self._why_unseen()
        self.shortfall = "no_step"
        if self._steps_are == "auto":
            self.remedy = "longer"
        message = "no step was seen in %g s%s: %s" % (limit_s, self._place(stacks), why)
        self.end("setup", message, stacks=stacks)

    def _why_unseen(self):
        self.remedy = "function"
        if not self._hooked and (self._launcher or len(self._stacks_by_pid) > 1):
            return "none of its processes reported one"  # those that have not joined did not tell what they import
        return why_unseen(self._steps_are, self._hooked)

    def _end_replaced(self, death=None):
        self.shortfall, self.remedy = "no_step", "command"
        self.end("setup", REPLACED, death=death)

    def _died_without_a_word(self, death):
        if self._steps_are == "auto" and death.exit_code == 0 and self._in_setup():
            self._take_whole(death, LEFT)
        elif death.exit_code == 0 and not self._in_setup() and not self.table.header[samples.LOST]:
            self._job_died(death)  # by os._exit, as some programs end their threads
        elif self._replaced and death.signal is None:
            self._end_replaced(death)
        else:
            ScriptWatch._died_without_a_word(self, death)

    def _take_whole(self, death, why):
        """End the trial of a launcher without ranks, or of a program that left without a word and without a step
        (os._exit, os.exec): its whole run is the one step, of which only what shows from outside is known."""
        self.run_s = self.clock() - self._began
        self.table.header[samples.STEPS] = 1
        self.table.column(self.columns["rss_kib"])[0] = death.peak_rss_kib
        self.ready(None, None, ["rss"])
        self.output.all_counts()
        self.look(1, {"cpu_s": processes.children_s(), "rss_peak_kib": death.peak_rss_kib}, last=True)
        self.shortfall, self.remedy = "no_step", ""
        self.end("completed", why)


# ---------------------------------------------------------------- unseen


CALLS = {
    "torch": "an optimizer's step",
    "keras": "a batch of fit",
    "tf1": "a Session.run that trains",
    "tf2": "a call of a tf.function that takes a gradient",
    "jax": "a compiled function whose name says that it trains",
    "lightning": "a training batch",
    "transformers": "a step of Trainer",
    "lightgbm": "a round of boosting",
    "xgboost": "a round of boosting",
    "sklearn": "a call of partial_fit",
}
LEAST_GRACE_S = 10.0
"""Seconds that a program has at least to end by itself after its steps; it has as many as it took so far."""
RSS = samples.COLUMNS.index("rss_kib")
SHORT = "the program ended by itself after %d of %d steps; let it make more, or lower `budget`"
LEFT = "the program ended by os._exit or in another program (os.exec), and no step was seen"
REPLACED = "no step was seen: the program replaced itself with another (os.exec), in which nothing can be counted"


def why_unseen(steps_are, hooked):
    """Return why no step was seen. `hooked`: framework -> whether its imported modules could be changed."""
    if ":" in steps_are:
        module = steps_are.partition(":")[0]
        return "%s was not called" % steps_are if "function" in hooked else "%s was not imported" % module
    if not hooked:
        return "it did not import %s" % ("any known framework" if steps_are == "auto" else steps_are)
    unknown = sorted(kind for kind in hooked if not hooked[kind])
    if unknown:
        return "this version of %s is not known" % " and ".join(unknown)
    return "%s: none was made" % " or ".join(CALLS[kind] for kind in sorted(hooked) if kind in CALLS)
