"""Takes looks: measurements before and after gc.collect, so that uncollected garbage does not blur the figures."""

import gc

from ..probes import memory, processes


class Looker(object):
    """Takes looks with the available readers. What cannot be read is missing in a look."""

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
        fields.update(memory.read_status())
        fields.update(self._pool.look())
        fields["cpu_s"] = self._cpu.spent_s
        fields["cgroup_kib"] = self._cgroup.usage_kib()
        fields["children_kib"] = processes.rss_kib(processes.descendants())
        return fields

    def last_look(self):
        """Return the same, with a second sample after the allocator has released free memory, which could disturb later
        steps."""
        fields = self.look()
        if memory.trim():
            fields.update(self._sample("_trimmed", until=2))
        return fields

    def _sample(self, suffix, until=3):
        return {name % suffix: read() for name, read in self._readers[:until] if read is not None}
