"""Quiet sweeps: eight equal versions, four variants of healthy programs, all signals on. Any finding is a false alarm.

Some sweeps are real. Many more are resampled from their launches (`planted_resampled`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from benchmarks.planted_programs.catalogue import QUIET
from benchmarks.planted_resampled import Pool, gather, made_sweeps, plan_of
from benchmarks.planted_sweeps import QUIET_VERSIONS, Swept, Workshop
from harness.judge.history.transitions import exact_interval
from harness.model import BAD


def run(workshop: Workshop, *, sweeps: int, resampled: int, note: Callable[[str], None]) -> str:
    """Make `sweeps` real and `resampled` resampled sweeps; return the shares with a false alarm, as text."""
    if not sweeps:
        return ""
    pools: dict[str, Pool] = {}
    real: list[str] = []
    for number in range(sweeps):
        swept = workshop.sweep(matrix(workshop))
        real.append(alarms_of(swept))
        plan = plan_of(swept)
        gather(swept, plan, pools)
        shutil.rmtree(swept.directory.parents[2], ignore_errors=True)
        note(f"quiet sweep {number + 1} of {sweeps}: {real[-1] or 'nothing found'}")
    lines = [share("quiet sweeps", real)]
    if resampled:
        lines.append(share("quiet sweeps, resampled", list(made_sweeps(plan, pools, resampled, note))))
    return "\n".join(lines)


def matrix(workshop: Workshop) -> dict[str, object]:
    return {
        "version": 1,
        "series": workshop.series("healthy", QUIET_VERSIONS),
        "scenarios": {"quiet": {"script": "healthy.py", "params": {"program": list(QUIET)}, "timeout": "5m"}},
    }


def alarms_of(swept: Swept) -> str:
    """Return the findings and bad verdicts of a real sweep of equal versions; "" if there are none."""
    found = [f"{one['metric']} {one['params']['program']}" for one in swept.summary["findings"]]
    bad = [f"{one['verdict']} {one['params']['program']}" for one in swept.summary["cells"] if one["verdict"] in BAD]
    return ", ".join([*found, *bad])


def share(name: str, found: Sequence[str]) -> str:
    """Return the share of the sweeps that found anything, its 95 % interval (Clopper and Pearson), and the findings."""
    count = sum(map(bool, found))
    low, high = exact_interval(count, len(found))
    what = "; ".join(dict.fromkeys(filter(None, found)))
    return f"{name}: {count} of {len(found)} with a finding, {count / len(found):.4f} ({low:.4f} to {high:.4f}) {what}"
