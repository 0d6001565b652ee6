"""Selects the GPUs of a node that belong to the allocation. Pure.

Slurm tells a step its GPUs in CUDA_VISIBLE_DEVICES. Where it also hides the others (ConstrainDevices), the driver lists
only those, and the numbers begin at 0 again. Where it does not, the driver lists all cards of the node, and the numbers
are the driver's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import InfrastructureError
from harness.model.gpus import Gpu


def ours(found: Sequence[Gpu], visible: str, *, place: object) -> tuple[Gpu, ...]:
    """Return the GPUs of `found` that `visible`, the value of CUDA_VISIBLE_DEVICES, names. () if it names none.

    Raises InfrastructureError if they cannot be told apart.
    """
    named = [name.strip() for name in visible.split(",") if name.strip() and name.strip() != "NoDevFiles"]
    if len(named) == len(found):
        return tuple(found)
    chosen = tuple(gpu for name in named for gpu in found if name in (str(gpu.index), gpu.uuid))
    if len(chosen) != len(named):
        there = "; ".join(map(str, found)) or "none"
        raise InfrastructureError(
            f"{place}: Slurm gave the GPUs {visible}, and the driver lists {there}; see gres.conf of the cluster"
        )
    return chosen
