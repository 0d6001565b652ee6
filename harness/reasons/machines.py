"""The reasons that concern the machines of a pool, and the rows on them."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason

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
    """How a machine of a pool differs from the others."""

    SLOWER = "{percent:.0f} % slower than usual in this pool"
    FASTER = "{percent:.0f} % faster than usual in this pool"
