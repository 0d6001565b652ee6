"""The names of the conditions in which trials that are not compared differ."""

CONDITION_NAMES = {
    "host.name": "host name",
    "host.machine": "machine",
    "host.cpu": "CPU",
    "host.cpus": "number of CPUs",
    "host.seen_cpu": "CPU",
    "host.memory_bytes": "memory",
    "host.huge_pages": "transparent huge pages",
    "host.page_kib": "page size",
    "host.cgroup": "cgroup version",
    "gpu.uuid": "GPU",
    "gpu.name": "GPU model",
    "gpu.driver": "GPU driver",
    "gpu.cuda": "driver's CUDA version",
    "gpu.power_limit_w": "GPU power limit",
    "settings.budget": "steps",
    "settings.memory_limit": "memory limit",
    "settings.agent": "agent version",
    "image.probes": "probes",
}
"""Field -> its name in messages, if it differs from the field."""
