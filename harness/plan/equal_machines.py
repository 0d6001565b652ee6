"""Selects the machines of a pool that are equal. Pure.

A whole row is measured on one machine, so nothing is compared across machines. They must be equal nevertheless: a fault
of one machine would look like a fault of the rows that it happened to measure.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.model.matrix import Gpu

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
GIB = 1 << 30
MOST_NAMES = 3
APART = 0.10
"""Share by which a machine's control may differ from the usual step time; equal to the default limit of step times."""


@dataclass(frozen=True, kw_only=True)
class MachineSeen:
    """A machine of a pool as it was found: the facts of its engine, and the GPUs that its lanes use."""

    name: str
    facts: Mapping[str, Any]
    gpus: tuple[Gpu, ...] = ()

    @property
    def traits(self) -> tuple[tuple[str, str], ...]:
        """Return what must be equal, as (name, value). Memory is in whole GiB: firmware reserves a little of it."""
        memory = self.facts.get("memory_bytes")
        host = {text: self.facts.get(name) for name, text in HOST_FIELDS.items()}
        host["memory (GiB)"] = round(memory / GIB) if isinstance(memory, int | float) else None
        cards = {text: [getattr(gpu, name) for gpu in self.gpus] for name, text in GPU_FIELDS.items()}
        host["GPUs"] = len(self.gpus)
        return (
            *((name, "not known" if value is None else str(value)) for name, value in host.items()),
            *((name, ", ".join(map(str, values))) for name, values in cards.items()),
        )


def odd_ones(machines: Sequence[MachineSeen]) -> dict[str, str]:
    """Return, by machine, how it differs from the majority of the pool; equal machines are left out.

    For example: `GPU driver 535.104.05 (gpu1, gpu2: 550.54.14), kernel 5.15 (6.1)`. If two groups of equal machines are
    equally large, the one with the machine listed first counts as the majority.
    """
    traits = {machine.name: machine.traits for machine in machines}
    if not traits:
        return {}
    usual, _ = Counter(traits.values()).most_common(1)[0]
    equal = [name for name, own in traits.items() if own == usual]
    more = f" and {len(equal) - MOST_NAMES} more" if len(equal) > MOST_NAMES else ""
    odd: dict[str, str] = {}
    for name, own in traits.items():
        differing = [(trait, one, other) for (trait, one), (_, other) in zip(own, usual, strict=True) if one != other]
        for number, (trait, one, other) in enumerate(differing):
            of = f"{', '.join(equal[:MOST_NAMES])}{more}: " if number == 0 else ""
            odd[name] = f"{odd[name]}, " if number else ""
            odd[name] += f"{trait} {one} ({of}{other})"
    return odd


def machine_change(before: MachineSeen, now: MachineSeen) -> str:
    """Return how a machine differs from its earlier state; "" if it does not. Other cards of the same kind count as a
    difference, because its row is bound to the earlier cards.
    """
    if before.traits != now.traits:
        return odd_ones([replace(before, name="before"), replace(now, name="now")])["now"]
    old, new = ([gpu.uuid for gpu in machine.gpus] for machine in (before, now))
    return "" if old == new else f"GPU {', '.join(new)} (before: {', '.join(old)})"


def unlike(control_ms: Mapping[str, float]) -> dict[str, str]:
    """Return, for each machine whose control differs from the usual step time by more than APART, the difference.

    `control_ms`: milliseconds by machine. The usual time is the lower median, so that of two machines the slower one is
    named.
    """
    if len(control_ms) < 2:
        return {}
    usual_ms = statistics.median_low(control_ms.values())
    ratios = {name: own_ms / usual_ms for name, own_ms in control_ms.items()}
    return {
        name: f"{100 * abs(ratio - 1):.0f} % {'slower' if ratio > 1 else 'faster'} than usual in this pool"
        for name, ratio in ratios.items()
        if not 1 / (1 + APART) <= ratio <= 1 + APART
    }
