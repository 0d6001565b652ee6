"""Decides whether a program that makes no progress has come to its end, and to which: a rank may have failed or ended,
or do nothing, while the others wait for it."""

import os

from .. import ending, samples
from ..probes import processes
from . import stalls

AFTER_FAILURE_S = 10.0
MISSED_SHARE = 0.2
"""Share of the time limit: for so long, and 2 STILL_S, a job is still whose ranks wait for one that lives, and for so
long, and QUIET_S, a program does nothing at all that hangs."""


class Standstill(object):
    """The time since the ranks of a job last made a step, computed, moved data or printed."""

    def __init__(self, job, group, where):
        self._job, self._group, self._where = job, group, where
        self._has_launcher = bool((job.order.get("program") or {}).get("launcher"))
        self._stillness, self._quiet = stalls.Stillness(), stalls.Stillness(stalls.QUIET_WINDOW_S)
        self._printed_bytes = 0
        self._made, self._since = None, job.clock()

    def ended(self, now, table, is_decided):
        """Return (end, message, stacks) if the trial ends now because it only waits, else None. `is_decided`: something
        else decides the end."""
        members = self._group.members
        made = sum(member.steps for member in members), len(members), table.header[samples.STARTED]
        if made != self._made or self._job.asked_at is not None:
            self._made, self._since = made, now
            self._stillness.begin()
            self._quiet.begin()
        if is_decided or self._job.done is not None or now - self._since <= AFTER_FAILURE_S:
            return None
        return self._end_of_waiting(now, is_over=table.header[samples.OVER])

    def _end_of_waiting(self, now, is_over):
        failed, ranks = self._group.first_failure(), self._group.ranks
        living = [member for member in ranks if member.lives]
        if failed is not None and not failed.is_first and (living or not ranks):
            is_late = now - failed.failed_at > AFTER_FAILURE_S and (living or self._is_missed(failed, now))
            return ("crash", "", "") if is_late else None
        if is_over:
            return None
        if 0 < len(living) < len(ranks) and all(member.waits_s(now) > AFTER_FAILURE_S for member in living):
            has_vanished = self._group.vanished() is not None
            return ("stopped", "", "") if has_vanished else self._hung(self._place() + ": no progress")
        if self._stillness.seconds(now) >= self._share(2 * stalls.STILL_S):
            return self._missed(now)
        if self._has_launcher or self._group.is_several or self._job.monitor.cards:
            return None
        return self._nothing_done(now)

    def _is_missed(self, failed, now):
        """Return whether the job stands still since a rank failed that had made no step."""
        is_rank = (failed.number, failed.birth) != (None, None)
        return is_rank and self._stillness.seconds(now) >= stalls.STILL_S

    def _missed(self, now):
        """Return the end of a trial whose ranks wait for one that does nothing. On several nodes, that one may be on
        another, and busy."""
        still_s = self._stillness.seconds(now)
        self._stillness.begin()
        if "NODE_RANK" in os.environ or not (self._has_launcher or len(processes.descendants()) > 1):
            return None
        stacks = self._where.ask()
        standing = self._where.standing()
        if not standing.is_sure:
            return None
        why = "no progress for %.0f s: %s" % (still_s, stalls.tell(standing))
        return "hang" if self._group.ranks else "setup", "%s: %s" % (self._place(), why), stacks

    def _nothing_done(self, now):
        """Return the end of a program that has neither computed, moved data nor printed for much longer than the
        harness expects a launch to take: it waits for what never comes, such as a lock. Work on a GPU would not show.
        """
        if self._printed_bytes != self._job.output.bytes:
            self._printed_bytes = self._job.output.bytes
            self._quiet.begin()
        quiet_s = self._quiet.seconds(now)
        if quiet_s < self._share(stalls.QUIET_S):
            return None
        place = self._place() if self._group.ranks else ending.before_steps(self._job.order["program"]["steps_are"])
        return self._hung(ending.placed(place, "nothing was done for %.0f s" % quiet_s))

    def _share(self, least_s):
        return max(least_s, MISSED_SHARE * self._job.order["timeout_s"])

    def _hung(self, message):
        stacks = self._where.ask()
        return "hang", message + self._where.place(stacks), stacks

    def _place(self):
        if not self._group.ranks:
            return "before the first step"
        return ending.place_after(self._job.steps(), self._job.order["looks"][-1])
