"""The ranks of a program: the processes that make its steps. The supervisor sees them as one job.

Each rank fills a table of its own. The job's step time is that of the slowest rank, row by row; its memory grows like
that of the rank that grows most. A program that steps in one process is a group of one, whose table is the job's.
"""

import os
import re
import signal
import socket
import struct

from .. import ending, killing, samples, wire
from ..probes import processes
from . import child

MOST = 64
BESIDE_A_LOOK = 3  # rows after a look in which other ranks may have waited for the one that was looking
LEAST_ROWS = 32
STEP_S, RSS, ANON, WAIT_S = (samples.COLUMNS.index(name) for name in ("step_s", "rss_kib", "anon_kib", "wait_s"))
LOOKED = {
    RSS: ("rss_kib", "rss_before_kib", "rss_trimmed_kib", "rss_peak_kib"),
    ANON: ("rss_anon_kib",),
    samples.COLUMNS.index("heap_kib"): ("heap_kib", "heap_before_kib", "heap_trimmed_kib"),
    samples.COLUMNS.index("blocks"): ("blocks", "blocks_before"),
    samples.COLUMNS.index("gpu_pool_kib"): ("gpu_pool_kib",),
}
"""The columns of memory, and the fields of a look that are at the same level."""
CREDENTIALS = struct.Struct("3i")  # of a peer: its pid, user and group
FRESH = 0.98  # share of its steps that a rank had made at a look that is as good as one now


class Member(object):
    """A process that makes steps, or that has joined to report its failure: `failure` is then (end, message)."""

    def __init__(self, fd, answers_fd, pid, link=None):
        self.fd, self._answers_fd, self.link = fd, answers_fd, link  # the socket that has both descriptors, if any
        self.pid = pid
        self.lines = wire.Lines()
        self.table = self.table_fd = None
        self.number = self.birth = self.world = None
        self.is_first = False
        self.has_stepped = False
        self.hung_up_at = None  # when its conversation ended, just before its process
        self.is_silent = False  # it would tell its end, and has not
        self.ended_well = False
        self.metrics = []
        self.about = {}  # what sets its pace, by name
        self.looks = {}  # step -> fields
        self.levels = {}  # place of a column -> [its first number, its newest]
        self.failure = self.death = None
        self.ended_at = self.failed_at = None

    @property
    def steps(self):
        return int(self.table.header[samples.STEPS]) if self.table is not None else 0

    @property
    def lives(self):
        return self.ended_at is None

    @property
    def was_terminated(self):
        return self.death is not None and self.death.signal == signal.SIGTERM

    def answer(self, answer):
        try:
            os.write(self._answers_fd, answer.encode("ascii") + b"\n")
        except OSError:
            return  # it died while it waited, which will be noticed next

    def fail(self, failure, now, death=None):
        """Note how it failed, as (end, message), and by which death, if the process told nothing itself."""
        self.failure, self.failed_at, self.death = failure, now, death

    def waits(self):
        return bool(self.table.header[samples.WAITING])

    def waits_s(self, now):
        """Return for how long it has waited for other ranks; 0 if it does not, or if no hook sees it."""
        began = self.table.header[samples.WAITING]  # read once: the rank writes 0 there at any moment
        return now - began if began else 0.0

    def has_looked(self, count):
        """Return whether it has taken its look number `count`, or one just now; a dead rank takes no more."""
        return not self.lives or len(self.looks) >= count or FRESH * self.steps < max(self.looks, default=0)

    def look(self, count):
        """Return its look number `count`, or its newest."""
        return list(self.looks.values())[min(count, len(self.looks)) - 1]

    def grown(self, place):
        """Return by how much a column has grown so far."""
        base, now = self.levels.get(place, (0.0, 0.0))
        return now - base

    def grown_kib(self):
        """Return by how much its anonymous memory has grown since the first quarter of its steps."""
        anon, taken = self.table.column(ANON), self.table.taken()
        eighth = taken // 8
        early, late = _median(anon, 2 * eighth, 3 * eighth + 1), _median(anon, taken - eighth - 1, taken)
        return late - early if early is not None and late is not None else 0.0

    def usual_s(self):
        """Return the medians of its step time and of that without the waits, after the first quarter; None if it has
        made few steps."""
        from statistics import median  # the import takes milliseconds, and only groups of ranks need it

        taken = self.table.taken()
        step_s, wait_s = self.table.column(STEP_S), self.table.column(WAIT_S)
        rows = [row for row in range(taken // 4, taken) if step_s[row] == step_s[row]]
        if len(rows) < LEAST_ROWS:
            return None, None
        own_s = [max(0.0, step_s[row] - (wait_s[row] if wait_s[row] == wait_s[row] else 0.0)) for row in rows]
        return median(step_s[row] for row in rows), median(own_s)


def accepted(listener, is_launched):
    """Return the process that connects, as a member that has not joined yet; None if it is no process of the trial.

    Any user of the machine may connect, for an abstract socket has no permissions. A launcher may have its ranks
    started by a process of the same user that is no descendant of the supervisor, as srun does.
    """
    try:
        link, _ = listener.accept()
    except OSError:  # it has hung up already
        return None
    link.setblocking(False)
    pid, user, _ = CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    if processes.is_descendant(pid) or (is_launched and user == os.getuid()):
        return Member(link.fileno(), link.fileno(), pid, link)
    link.close()
    return None


def _median(column, first, stop):
    from statistics import median

    values = [column[row] for row in range(max(0, first), stop) if column[row] == column[row]]
    return median(values) if values else None


class Group(object):
    """Holds the members and the table of a job. `rows`, `stride`: the shape of each table. `budget`: the last step."""

    def __init__(self, rows, stride, budget):
        self.members = []
        self.lead = None  # the rank whose looks are the job's
        self.table = None  # of the job, once it has several ranks
        self.looked = set()  # the steps of the job's looks
        self._shape, self._budget = (rows, stride), budget
        self._merged = 0  # rows
        self._made = 0  # steps by earlier leads
        self._levels = {}  # place of a column -> the first number of the job

    @property
    def ranks(self):
        """Return the members that have made steps, in the order of their numbers."""
        return sorted((member for member in self.members if member.has_stepped), key=self.number_of)

    @property
    def is_several(self):
        return sum(member.has_stepped for member in self.members) > 1

    def number_of(self, member):
        """Return the rank's number: as its environment says, or by birth, of which the first process is none unless it
        makes steps itself."""
        if member.number is not None:
            return member.number
        steps_itself = any(each.is_first and each.has_stepped for each in self.members)
        if member.birth is not None:
            return member.birth - (0 if steps_itself else 1)
        unnumbered = [each for each in self.members if each.number is None and each.birth is None]
        unnumbered = [each for each in unnumbered if each.has_stepped or each is member]
        return unnumbered.index(member)

    def predecessor(self, member):
        """Return the dead rank whose number a new member has, so that it goes on in its table; None if there is none.
        Without numbers, any that ended well."""
        dead = [each for each in self.members if not each.lives and each.has_stepped and not each.is_first]
        for each in dead:
            ended_well = each.failure is None and each.birth is None
            if each.number == member.number and (member.number is not None or ended_well):
                return each
        return None

    def forgive(self):
        """Forget the failures of the dead: a launcher that starts a rank again starts all of them again."""
        for each in self.members:
            if each.failure and not each.lives:
                each.failure, each.is_silent = None, False

    def elect(self):
        """Choose the lead: the first process if it makes steps, else the lowest living rank. It changes only if it has
        ended before its last step while others live, or before the first look."""
        ranks = [member for member in self.ranks if member.lives] or ([] if self.lead else self.ranks)
        is_open = self.lead is None or not (self.lead.lives or self.lead.table.header[samples.OVER])
        if ranks and (is_open or not self.looked):
            self._made = max(self._made, self.lead.steps if self.lead is not None and self.looked else 0)
            self.lead = min(ranks, key=lambda member: (not member.is_first, self.number_of(member)))
        return self.lead

    # -------------------------------------------------------------- one table

    def refresh(self):
        """Copy what the lead's header says to that of the job's table. A new lead may be behind the one that ended: the
        job's steps do not go backwards. One that was started again may have gone beyond the job's last step."""
        if self.table is not None and self.lead is not None:
            header, source = self.table.header, self.lead.table.header
            header[samples.STEPS] = min(max(self._made, source[samples.STEPS]), self._budget)
            for place in (samples.STARTED, samples.OVERHEAD_S, samples.BUSY_S, samples.OVER):
                header[place] = source[place]

    def set_stop(self, value):
        """Ask the lead to end or to park at its next step, or to go on. The others may wait for it in a step."""
        if self.lead is not None:
            self.lead.table.header[samples.STOP] = value

    def make_table(self, sent):
        """Make the job's table, of which `sent` rows have been told when its first rank was the only one."""
        self.table, self._merged = samples.Table(-1, *self._shape), sent
        self.table.clear(0, samples.ALWAYS)
        for place in LOOKED if sent else ():
            newest = self.lead.table.last(place)
            if newest is not None:
                self._levels[place], self.lead.levels[place] = newest, [newest, newest]

    def merge(self, metrics):
        """Fill the rows of the job's table up to its last step. `metrics`: their names."""
        ranks, stride = self.ranks, self._shape[1]
        first, stop = self._merged, max(self._merged, self.table.taken())
        beside = {step // stride + more for step in self.looked for more in range(BESIDE_A_LOOK)}
        step_s, sources = self.table.column(STEP_S), [(each.table.column(STEP_S), each.table.taken()) for each in ranks]
        own_s = self.lead.table.column(STEP_S)
        for row in range(first, stop):
            if row in beside:
                step_s[row] = own_s[row]
            else:
                values = [column[row] for column, taken in sources if row < taken and column[row] == column[row]]
                step_s[row] = max(values) if values else float("nan")
        for place in LOOKED:
            self._fill(place, first, stop)
        for number, name in enumerate(metrics):
            source = next((each for each in ranks if name in each.metrics), None)
            if source is not None:
                before = max(0, first - 1)  # what is logged after a step belongs to its row: it may have changed since
                column = source.table.column(len(samples.COLUMNS) + source.metrics.index(name))
                self.table.column(len(samples.COLUMNS) + number)[before:stop] = column[before:stop]
        self._merged = stop

    def _fill(self, place, first, stop):
        """Fill rows of a column with the memory of one rank plus the largest growth of any, since its own first number.
        A rank without a number in a row has its last one."""
        sources = [(each.levels, each.table.column(place), each.table.taken()) for each in self.ranks]
        target = self.table.column(place)
        for row in range(first, stop):
            new = [(each, column[row]) for each, column, taken in sources if row < taken and column[row] == column[row]]
            for levels, value in new:
                levels.setdefault(place, [value, value])[1] = value
                self._levels.setdefault(place, value)
            known = [levels[place] for levels, _, _ in sources if place in levels]
            target[row] = self._levels[place] + max(now - base for base, now in known) if new else float("nan")

    def ask_looks(self):
        """Ask all ranks to look after a step that none has made if they wait for each other."""
        for member in self.ranks:
            member.table.header[samples.STOP] = samples.LOOK + self.lead.steps + 2

    def late(self):
        """Return whether a rank has taken fewer looks than the lead, and may yet take one."""
        return any(not each.has_looked(len(self.lead.looks)) for each in self.ranks if not each.waits())

    def look(self, step):
        """Return the job's look at a step: that of the rank whose memory has grown most, with the processor time of
        all, and the bytes that all moved."""
        self.looked.add(step)
        if not self.is_several:
            return self.lead.looks[step]
        number = len(self.lead.looks)
        took = [each for each in self.ranks if each.looks and each.has_looked(number)]
        worst = max(took, key=lambda member: member.grown(ANON))
        look = dict(worst.look(number))
        for place, names in LOOKED.items():
            shift = self._levels[place] - worst.levels[place][0] if place in worst.levels else 0.0
            look.update((name, look[name] + shift) for name in names if look.get(name) is not None)
        for name in ("cpu_s", *processes.MOVED):
            own = [each.look(number).get(name) for each in took]
            look[name] = None if None in own or len(took) < len(self.ranks) else sum(own)
        return look

    # -------------------------------------------------------------- what is told at the end

    def facts(self):
        """Return what `done` tells of each rank. The pace of a rank that lost another one cannot be compared."""
        facts, failed = [], self.first_failure()
        is_lost = failed is not None and not failed.was_terminated
        for member in self.ranks:
            step_s, own_s = member.usual_s()
            facts.append(
                {
                    "rank": self.number_of(member),
                    "steps": member.steps,
                    "step_s": wire.json_number(step_s),
                    "own_s": None if is_lost else wire.json_number(own_s),
                    "grown_kib": wire.json_number(member.grown_kib()),
                    "about": dict(member.about, **{"size of the group": str(member.world)} if member.world else {}),
                    "not_finite": sorted(member.table.not_finite(member.metrics)),
                }
            )
        return facts

    def made_all(self, end):
        """Return whether the job has made all its steps. `end`: the end that the first process told."""
        if self.lead is None or self.lead.is_first:
            return end == "completed"
        return self.lead.steps >= self._budget

    def add_not_finite(self, counts):
        """Add what the ranks returned to `counts`: name -> [steps with a number that is not finite, the first]."""
        for member in self.ranks:
            for name, (count, first) in member.table.not_finite(member.metrics).items():
                before = counts.get(name, [0, first])
                counts[name] = [before[0] + count, min(before[1], first)]

    def first_failure(self):
        """Return the member that failed first, or None. A launcher ends the others by SIGTERM: these come last."""
        failed = [member for member in self.members if member.failure is not None]
        return min(failed, key=lambda member: (member.was_terminated, member.failed_at)) if failed else None

    def is_new(self, pid, now):
        """Return whether a process began after the first failure, as ranks do that a launcher starts again."""
        failed, process = self.first_failure(), processes.look_at(pid)
        if failed is None or process is None:
            return False
        return now - (processes.uptime_s() - process.began_s) > failed.failed_at

    def vanished(self):
        """Return the rank whose process was the first to end without a word, or None."""
        gone = [each for each in self.ranks if each.is_silent and each.hung_up_at is not None]
        gone = [each for each in gone if not (each.failure or each.is_first)]
        return min(gone, key=lambda member: member.hung_up_at) if gone else None

    def named(self, member):
        """Return `rank 2: ` for a message about a member; "" if there is only one rank."""
        others = self.is_several or (member.world or 1) > 1
        is_rank = member.has_stepped or member.number is not None or member.birth is not None
        return "rank %d: " % self.number_of(member) if others and is_rank else ""

    def end_of_first(self, is_bad, stacks):
        """Return (end, message, death) of the rank that failed first; None if none did. `is_bad`: the job ended badly,
        too; `stacks`: what its processes wrote when a signal killed them."""
        failed, gone = self.first_failure(), self.vanished()
        if gone is not None and (failed is None or failed.was_terminated):
            fatal = FATAL.search(stacks)
            message = "%s: %s" % (ending.place_after(gone.steps, self._budget), fatal.group() if fatal else VANISHED)
            return "crash" if is_bad or fatal else "infrastructure", self.named(gone) + message, None
        if failed is None or failed.is_first or not (is_bad or failed.has_stepped):
            return None
        end, message = failed.failure
        lines = message.splitlines() or [""]
        well = [each for each in self.ranks if each.ended_well and not each.failure and each.steps <= failed.steps]
        first = min(well, key=lambda each: each.steps, default=None)  # others may have failed because they lost it
        ended = "rank %d ended after %d steps; " % (self.number_of(first), first.steps) if first else ""
        return end, "\n".join([*lines[:-1], ended + self.named(failed) + lines[-1]]), failed.death


VANISHED = "its process ended without a word, by a signal or by os._exit"
FATAL = re.compile("Fatal Python error: .{1,80}")  # as faulthandler writes it


def death_of(pid):
    """Return the death of a process that failed and that its parent has not waited for; None if it lives, is gone, or
    ended well."""
    process = processes.look_at(pid)
    return child.death_by(process.status) if process and process.state == "Z" and process.status else None


def is_gone(pid):
    """Return whether a process is dead, whether or not its parent has waited for it."""
    process = processes.look_at(pid)
    return process.state in "ZX" if process else not killing.exists(pid)
