"""Lists the reasons that concern the machines of a pool and their rows, and the names of what differs between them."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason

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
HOST_FIELDS = {"cpu": "CPU", "cpus": "CPUs", "kernel": "kernel", "architecture": "architecture", "engine": "engine"}
"""Fact of an engine -> its name in messages. Clock frequencies are left out, because they change by themselves."""
GPU_FIELDS = {
    "name": "GPU",
    "driver": "GPU driver",
    "memory_mib": "GPU memory (MiB)",
    "power_limit_w": "GPU power limit (W)",
    "ecc": "GPU ECC",
    "mig": "GPU MIG",
}
"""Property of a GPU -> its name in messages."""


@unique
class MachineReason(Reason):
    """Says why a machine of a pool, or the row on it, is given up, and how a machine differs from the others."""

    LEFT_OUT = (
        "{machine} is left out of the pool: it differs in {difference}; make it match the others, or define a separate "
        "host for it"
    )
    NODE_LEFT_OUT = (
        "{machine} is left out of the pool: it differs in {difference}; make `select` match equal nodes only, or name "
        "this one in `nodes` of another host"
    )
    NONE_USABLE = "no machine of the pool can be used: {problems}"
    LOST = "{machine} was lost: {error}"
    LOST_AND_CHANGED = "{machine} was lost: {error}; it came back with {difference}"
    LOST_AND_TAKEN = "{machine} was lost, and another sweep uses it now"

    LOST_DURING_ROUND = "the machine was lost in the middle of its round"
    LOST_DURING_ROW = "{machine} was lost while it measured this row"
    SEVERAL_LOST_DURING_ROW = "{count} machines were lost one after the other while they measured this row: {machines}"

    SLOWER = "{percent:.0f} % slower than usual in this pool"
    FASTER = "{percent:.0f} % faster than usual in this pool"
