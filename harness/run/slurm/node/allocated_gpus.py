"""Selects the GPUs of a node that belong to the allocation, from what the driver lists and what Slurm reports.

Slurm passes the GPUs of a step in CUDA_VISIBLE_DEVICES. If Slurm also hides the others (ConstrainDevices), the driver
lists only the step's GPUs, and the numbers start at 0. Otherwise the driver lists all cards of the node under its own
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import InfrastructureError
from harness.model.matrix import Gpu


def allocated_gpus(listed: Sequence[Gpu], visible: str, *, place: object) -> tuple[Gpu, ...]:
    """Return the GPUs in `listed` that are named in `visible`, the value of CUDA_VISIBLE_DEVICES; () if it is empty.

    Raises InfrastructureError if `visible` names a GPU that is not listed.
    """
    names = [name.strip() for name in visible.split(",") if name.strip() and name.strip() != "NoDevFiles"]
    if len(names) == len(listed):
        return tuple(listed)
    chosen = tuple(gpu for name in names for gpu in listed if name in (str(gpu.index), gpu.uuid))
    if len(chosen) != len(names):
        there = "; ".join(map(str, listed)) or "none"
        raise InfrastructureError(
            f"Slurm gave the GPUs {visible}, but the driver lists {there}; see gres.conf of the cluster", place=place
        )
    return chosen
