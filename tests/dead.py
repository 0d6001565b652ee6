"""Names an owner that is gone: this process, as if it had started at another time."""

from __future__ import annotations

import re

from harness.run import owners


def dead_owner() -> str:
    return re.sub(r"\d+$", "1", owners.this_process())


def dead_name(mark: str = "abcd", *, prefix: str = owners.PREFIX) -> str:
    return re.sub(r"_[0-9a-f]+_$", "_1_", owners.new_name(prefix, mark="-")[:-1]) + mark
