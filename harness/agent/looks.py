"""A look: what is measured around gc.collect, where the garbage of the scenario no longer blurs the figures."""

import gc
import os

from .probes import heap, status, tree


class Looker(object):
    """Takes looks with the readers that this process has; what cannot be read is missing in a look."""

    def __init__(self, readers, cgroup, pool, cpu):
        names = ("rss%s_kib", "rss_kib"), ("heap%s_kib", "heap_kib"), ("blocks%s", "blocks")
        self._readers = [(name, readers[column]) for name, column in names]
        self._cgroup = cgroup
        self._pool = pool
        self._cpu = cpu

    def look(self):
        """The fields of model.Look, but for its step."""
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
        """The same, and once more after the allocator gave back what is free: no step follows that this disturbs."""
        fields = self.look()
        if heap.trim():
            fields.update(self._sample("_trimmed", until=2))
        return fields

    def _sample(self, suffix, until=3):
        return {name % suffix: read() for name, read in self._readers[:until] if read is not None}
