"""A look: measurements around gc.collect, so that the scenario's uncollected garbage does not blur the figures."""

import gc
import os

from ..probes import heap, status, tree


class Looker(object):
    """Takes looks with the available readers; anything unreadable is missing in a look."""

    def __init__(self, readers, cgroup, pool, cpu):
        names = ("rss%s_kib", "rss_kib"), ("heap%s_kib", "heap_kib"), ("blocks%s", "blocks")
        self._readers = [(name, readers[column]) for name, column in names]
        self._cgroup = cgroup
        self._pool = pool
        self._cpu = cpu

    def look(self):
        """Return the fields of model.Look, except its step."""
        fields = self._sample("_before")
        gc.collect()
        fields.update(self._sample(""))
        fields.update(status.read())
        fields.update(self._pool.look())
        fields["cpu_s"] = self._cpu.spent_s
        fields["cgroup_kib"] = self._cgroup.usage_kib()
        fields["children_kib"] = tree.rss_kib(tree.descendants(os.getpid()))
        return fields

    def last_look(self):
        """Return the same, and measure again after the allocator released free memory, which disturbs no later step."""
        fields = self.look()
        if heap.trim():
            fields.update(self._sample("_trimmed", until=2))
        return fields

    def _sample(self, suffix, until=3):
        return {name % suffix: read() for name, read in self._readers[:until] if read is not None}
