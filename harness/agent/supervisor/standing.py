"""Tells where the ranks stand of a job that makes no progress: who waits, who is missing, who has ended."""

import collections
import os
import re

from ..probes import processes
from ..scenario import entering

WAITS = re.compile(
    r'^(Current t|T)hread .*\n +File "[^"]*/(torch/distributed/\w+\.py"|jax/_src/distributed\.py"'
    r'|tensorflow/python/eager/context\.py", line \d+ in ensure_initialized\n +File "[^"]*/collective_all_reduce_)'
    r'|^ +File "[^"]*/threading\.py", line \d+ in _wait$',  # of a barrier
    re.MULTILINE,
)
"""In the stacks of a process that waits for other ranks."""
MOST_PLACES = 4
MOST_STACKS = 32
SEVERAL = {"is missing": "are missing", "has ended": "have ended", "waits": "wait", "stands": "stand", "was": "were"}

Rank = collections.namedtuple("Rank", "number pid steps waits")


def tell(group, stacks, places, first, now):
    """Return who is missing and who waits, whether any surely waits for other ranks, and whether ranks were started
    again after a failure. `stacks`, `places`: pid -> text, and ` (file:line in function)` or ""; `first`: the pid of
    the first process."""
    living = [member for member in group.ranks if member.lives]
    ended = [group.number_of(member) for member in group.ranks if not member.lives]
    ranks = [
        Rank(group.number_of(each), each.pid, each.steps, each.waits() or _waits(stacks, each.pid)) for each in living
    ]
    unseen = set(places).difference(each.pid for each in group.members)
    coming, size = _coming(stacks, {rank.pid: rank.number for rank in ranks}, first)
    again = {rank.number for rank in coming if group.is_new(rank.pid, now)}
    is_sure = any(rank.waits for rank in ranks + coming)
    if is_sure:
        ended = [number for number in ended if number not in again]
        ranks += [rank for rank in coming if rank.number not in ended]
    elif not ranks:
        found = sorted(set(filter(None, places.values())))[:MOST_PLACES]
        return "its processes stand still%s" % " and".join(found) if unseen and found else "", False, False
    missing = [rank for rank in ranks if not rank.waits] if is_sure else _odd(ranks, places)
    never = set(range(size if is_sure else 0)).difference(ended, [rank.number for rank in ranks])
    words = list(_sentences(missing, places, "is missing"))
    words += [_sentence(ended, "has ended")] if ended else []
    words += [_sentence(sorted(never), "was") + " not seen"] if never else []
    parents = {process.parent for process in map(processes.look_at, [rank.pid for rank in ranks]) if process}
    for pid in unseen.difference(rank.pid for rank in ranks):
        process = processes.look_at(pid)
        if process and process.parent in parents and not missing:
            words.append("a process has made no step%s" % places[pid])
    others = [rank for rank in ranks if rank not in missing]
    words += _sentences(others, places, "waits" if is_sure or missing else "stands")
    return ", ".join(words), is_sure, bool(again)


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
