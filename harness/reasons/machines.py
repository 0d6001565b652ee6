"""The reasons that concern the machines of a pool, and the rows on them."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class MachineReason(Reason):
    """How a machine of a pool differs from the others."""

    SLOWER = "{percent:.0f} % slower than usual in this pool"
    FASTER = "{percent:.0f} % faster than usual in this pool"
