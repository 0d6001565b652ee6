"""Classifies GPUs by name: data-centre cards, consumer cards, and others."""

from __future__ import annotations

import re

CONSUMER = re.compile(r"\b(?:GeForce|TITAN|GTX|RTX [2-5]0[5-9]0)\b", re.IGNORECASE)
DATA_CENTRE = frozenset({
    "TESLA", "K20", "K40", "K80", "M4", "M6", "M10", "M40", "M60", "P4", "P6", "P40", "P100", "V100", "T4",
    "A2", "A10", "A10G", "A16", "A30", "A40", "A100", "A800", "L2", "L4", "L20", "L40", "L40S", "H20", "H100",
    "H200", "H800", "GH200", "B100", "B200", "B300", "GB200", "GB300",
})  # fmt: skip


def is_data_centre(name: str) -> bool | None:
    """Return whether the driver supports forward compatibility packages on the card. None for workstation cards and
    unknown names: some of them are supported, and only the driver knows which.
    """
    if CONSUMER.search(name):
        return False
    return True if DATA_CENTRE & set(re.split(r"[\s-]+", name.upper())) else None
