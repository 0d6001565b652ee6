"""Measures the processor time of this process and its descendants."""

import resource
import time

from . import tree


def children_s():
    """Return the processor seconds of the descendants: exact for reaped ones, to a clock tick for living ones."""
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    return waited_for.ru_utime + waited_for.ru_stime + tree.cpu_s(tree.descendants())


_thread_s = getattr(time, "thread_time", time.process_time)  # Python 3.7


class Meter(object):
    """Adds up the processor time of this process and its descendants while it runs."""

    def __init__(self):
        self.spent_s = 0.0
        self._since_s = 0.0
        self._thread_since_s = 0.0

    def resume(self):
        before_s = children_s()
        self._since_s, self._thread_since_s = time.process_time() + before_s, _thread_s()

    def pause(self, overhead):
        """Stop the clock. `overhead` is the share of the time that the agent took; that share of this thread's
        processor time is subtracted. Time lost to other processes affects both parts in proportion."""
        own_s = overhead * (_thread_s() - self._thread_since_s)
        self.spent_s += max(0.0, time.process_time() + children_s() - self._since_s - own_s)
