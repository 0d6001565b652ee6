"""Finds out where a job stands that makes no progress: the stacks of its processes, who waits, who is missing, and who
has ended."""

import collections
import os
import re
import time

from .. import libc, samples, wire
from ..probes import processes
from ..scenario import entering

QUIET_S, QUIET_WINDOW_S = 30.0, 10.0  # the least time for which a program may do nothing, and how often that is read
STACKS_S = 2.0
STACKS_PAUSE_S = 0.1
STILL_S, STILL_SHARE, STILL_BYTES = 30.0, 0.05, 16384  # of one processor; a second

Still = collections.namedtuple("Still", "since at cpu_s moved_bytes")


class Stacks(object):
    """The stacks that faulthandler writes into one file when a process is asked, or when a signal kills it, even if it
    is stuck in C."""

    def __init__(self, root, clock):
        self.fd = libc.raised(samples.shared_file("stacks", 0))
        self.by_pid = {}  # of several processes, once they were asked for
        self._root, self._clock = root, clock

    def ask(self, pid):
        """Return the stacks of all threads of a process; "" if it has ended."""
        before, until, text = os.fstat(self.fd).st_size, self._clock() + STACKS_S, ""
        try:
            os.kill(pid, libc.STACKS_SIGNAL)
        except OSError:
            return ""
        while self._clock() < until:
            time.sleep(STACKS_PAUSE_S)
            newest = self.written(before)
            if newest and newest == text:
                break
            text = newest
        return text

    def ask_all(self, named):
        """Return the stacks of several processes, each after a line with its pid: of those in `named` (pid -> name),
        and of all others that answer."""
        others = [pid for pid in processes.descendants() if pid not in named and _writes_stacks(pid)]
        self.by_pid = {pid: self.ask(pid) for pid in [*named, *others][:MOST_STACKS]}
        return "\n".join(
            "%s(pid %d)\n%s" % (named.get(pid, ""), pid, text) for pid, text in self.by_pid.items() if text
        )

    def written(self, start=0):
        """Return what faulthandler wrote from `start` on, without the agent's own frames."""
        text = os.pread(self.fd, wire.TAIL_BYTES, start).decode("utf-8", "replace")
        ours = ('File "%s/harness_agent/' % self._root, 'File "%s/start.py"' % self._root)
        return "".join(line for line in text.splitlines(True) if not line.strip().startswith(ours))

    def place(self, text):
        """Return ` (file:line in function)` of the innermost frame in the user's files, or ""."""
        frame = re.search(r'File "%s/scenario/(.+?)", line (\d+) in (\S+)' % re.escape(self._root), text)
        return " (%s:%s in %s)" % frame.groups() if frame else ""


class Whereabouts(object):
    """Tells where the processes of a script or a program stand. `is_replaced`: the first process became another program
    (os.exec), which has no handler for STACKS_SIGNAL."""

    def __init__(self, job, group, stacks):
        self._job, self._group, self._stacks = job, group, stacks
        self._program = job.order.get("program")
        self.is_replaced = False

    def ask(self):
        """Return the stacks of the first process, or those of all ranks, each after a line that names it."""
        named = {member.pid: self._group.named(member) for member in self._group.members if member.lives}
        has_launcher = self._program is not None and self._program.get("launcher")
        is_one = self._group.ranks and not has_launcher and not self._group.is_several and len(named) <= 1
        if self._program is None or is_one:
            return "" if self.is_replaced else self._stacks.ask(self._job.child.pid)
        return self._stacks.ask_all(named)

    def place(self, stacks):
        """Return where the program stands: of several ranks, who is missing and who waits."""
        words = tell(self.standing()) if self._stacks.by_pid else ""
        return ": " + words if words else self._stacks.place(stacks)

    def standing(self):
        return standing(self._group, self._stacks, self._job.child.pid, self._job.clock())

    def waits_again(self):
        """Return whether ranks surely wait that a launcher started again after all ranks had ended."""
        if not self._stacks.by_pid or any(each.lives for each in self._group.ranks):
            return False
        found = self.standing()
        return found.is_sure and found.is_again


def _writes_stacks(pid):
    """Return whether a process answers if its stacks are asked for."""
    return any("memfd:stacks" in processes.target(each.path) for each in processes.entries_of("/proc/%d/fd" % pid))


class Stillness(object):
    """Measures for how long a job has used hardly any processor time, and has moved hardly any data: it may be loading
    what it needs, but not like this."""

    def __init__(self, window_s=None):
        self._window_s = window_s or STILL_S
        self._last = None

    def begin(self):
        """Begin anew."""
        self._last = None

    def seconds(self, now):
        before = self._last
        if before is None or now - before.at >= self._window_s:
            cpu_s, moved = processes.children_s(), processes.moved_bytes()
            is_still = (
                before is not None
                and None not in (moved, before.moved_bytes)
                and cpu_s - before.cpu_s < STILL_SHARE * (now - before.at)
                and abs(moved - before.moved_bytes) < STILL_BYTES * (now - before.at)
            )
            self._last = Still(before.since if is_still else now, now, cpu_s, moved)
        return self._last.at - self._last.since


# ---------------------------------------------------------------- who waits for whom


WAITS = re.compile(
    r'^(Current t|T)hread .*\n +File "[^"]*/(torch/distributed/\w+\.py"|jax/_src/distributed\.py"'
    r'|tensorflow/python/eager/context\.py", line \d+ in ensure_initialized\n +File "[^"]*/collective_all_reduce_)'
    r'|^ +File "[^"]*/threading\.py", line \d+ in _wait$',  # of a barrier
    re.MULTILINE,
)
"""Matches the stacks of a process that waits for other ranks."""
MOST_PLACES = 4
MOST_STACKS = 32
SEVERAL = {"is missing": "are missing", "has ended": "have ended", "waits": "wait", "stands": "stand", "was": "were"}

Rank = collections.namedtuple("Rank", "number pid steps waits")
Standing = collections.namedtuple("Standing", "missing others ended unseen stepless is_sure is_again places")
Standing.__doc__ = """Where the ranks of a job stand: those that the others seem to wait for, and these; the numbers of
those that have ended, and of those that were never seen; the pids of processes that made no step; whether a rank surely
waits, and whether ranks were started again after a failure; pid -> ` (file:line in function)`, or ""."""


def standing(group, found, first, now):
    """Return where the ranks stand. `found`: the Stacks that were asked for; `first`: the pid of the first process."""
    stacks, places = found.by_pid, {pid: found.place(text) for pid, text in found.by_pid.items()}
    ended = [group.number_of(member) for member in group.ranks if not member.lives]
    ranks = [
        Rank(group.number_of(each), each.pid, each.steps, each.waits() or _waits(stacks, each.pid))
        for each in group.ranks
        if each.lives
    ]
    stepless = set(stacks).difference(each.pid for each in group.members)
    coming, size = _coming(stacks, {rank.pid: rank.number for rank in ranks}, first)
    again = {rank.number for rank in coming if group.is_new(rank.pid, now)}
    is_sure = any(rank.waits for rank in ranks + coming)
    if not is_sure:
        missing, unseen = _odd(ranks, places), set()
    else:
        ended = [number for number in ended if number not in again]
        ranks += [rank for rank in coming if rank.number not in ended]
        missing = [rank for rank in ranks if not rank.waits]
        unseen = set(range(size)).difference(ended, [rank.number for rank in ranks])
    others = [rank for rank in ranks if rank not in missing]
    stepless = stepless.difference(rank.pid for rank in ranks)
    return Standing(missing, others, ended, sorted(unseen), stepless, is_sure, bool(again), places)


def tell(found):
    """Return the words for where the ranks stand; "" if nothing is known."""
    ranks, places = found.missing + found.others, found.places
    if not (ranks or found.is_sure):
        where = sorted(set(filter(None, places.values())))[:MOST_PLACES]
        return "its processes stand still%s" % " and".join(where) if found.stepless and where else ""
    words = list(_sentences(found.missing, places, "is missing"))
    words += [_sentence(found.ended, "has ended")] if found.ended else []
    words += [_sentence(found.unseen, "was") + " not seen"] if found.unseen else []
    parents = {process.parent for process in map(processes.look_at, [rank.pid for rank in ranks]) if process}
    for process in map(processes.look_at, () if found.missing else found.stepless):
        if process and process.parent in parents:
            words.append("a process has made no step%s" % places[process.pid])
    words += _sentences(found.others, places, "waits" if found.is_sure or found.missing else "stands")
    return ", ".join(words)


def _waits(stacks, pid):
    return WAITS.search(stacks.get(pid, "")) is not None


def _coming(stacks, joined, first):
    """Return the ranks that have made no step yet, and the size of the group, 0 if unknown. Their numbers stand in the
    environment with which they began, or else follow the order in which the first process started them."""
    found, size = {}, 0
    for pid in stacks:
        variables = map(os.fsdecode, processes.command_line(pid, "environ"))
        number, world = entering.numbered(dict(word.partition("=")[::2] for word in variables))
        size = max(size, world or 0)
        if number is not None and number not in joined.values():
            found.setdefault(number, pid)  # a worker of a rank comes after it
    if not found:
        started = [pid for pid in sorted(stacks) if getattr(processes.look_at(pid), "parent", None) == first]
        found = dict(enumerate([first] * _waits(stacks, first) + started))
    coming = [Rank(number, pid, 0, _waits(stacks, pid)) for number, pid in sorted(found.items()) if pid not in joined]
    return coming, 0 if size > MOST_STACKS or "NODE_RANK" in os.environ else size


def _odd(ranks, places):
    """Return the ranks that are behind all others, or else stand at another place than most."""
    least = min((rank.steps for rank in ranks), default=0)
    behind = [rank for rank in ranks if rank.steps == least]
    if 2 * len(behind) < len(ranks) + 1 and len(behind) < len(ranks):
        return behind
    counts = collections.Counter(places.get(rank.pid) for rank in ranks)
    return [rank for rank in ranks if 2 * counts[places.get(rank.pid)] < len(ranks)]


def _sentences(ranks, places, one):
    for place in dict.fromkeys(places.get(rank.pid, "") for rank in ranks):
        yield _sentence([rank.number for rank in ranks if places.get(rank.pid, "") == place], one) + place


def _sentence(numbers, one):
    """Return `rank 2 waits`, or `ranks 0, 1 and 3 wait`."""
    *most, last = map(str, numbers)
    return "ranks %s and %s %s" % (", ".join(most), last, SEVERAL[one]) if most else "rank %s %s" % (last, one)
