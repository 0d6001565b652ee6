"""How much sooner a sweep ends on several machines.

`pool` uses the lab's engines (docs/gpu.md; root, Docker), whose GPUs are doubles. Steps sleep, so that the engines of
one machine take no processor time from each other; starting containers does, so the ratio is an upper bound.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests import pools
from tests.lab.daemon import Daemon

POOL_RATIO = 0.29
BASE = "harness-base:bookworm"


def pool(machines: int = 4, rows: int = 16, steps: int = 2000, base: str = BASE) -> bool:
    """Compare a sweep on a pool of equal machines with the same sweep on one of them; about 4 minutes."""

    def took_s(used: Sequence[Daemon]) -> float:
        with tempfile.TemporaryDirectory() as folder:
            matrix = pools.on_engines(Path(folder), used, base=base, rows=rows, steps=steps, versions=1, trials=1)
            return _swept_s(matrix)

    with pools.engines(machines, base) as found:
        together_s, alone_s = took_s(found), took_s(found[:1])
    ratio = together_s / alone_s
    print(f"{rows} rows: one machine {alone_s:.1f} s, {machines} machines {together_s:.1f} s", end=", ")
    print(f"ratio {ratio:.3f}, bound {POOL_RATIO}")
    return ratio <= POOL_RATIO


def _swept_s(matrix: Path) -> float:
    """Return the wall seconds of a sweep."""
    begun_s = time.perf_counter()
    process: subprocess.Popen[str] = pools.start(matrix, os.environ)
    out, _ = process.communicate()
    took_s = time.perf_counter() - begun_s
    if process.returncode not in (0, 1, 4):  # with any of these codes, everything ran
        sys.exit(f"the sweep ended with {process.returncode}:\n{out}")
    return took_s
