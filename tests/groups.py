"""The order of the tests, and which of them run one after the other in one pytest process: `--dist loadgroup`."""

from __future__ import annotations

import pytest

GROUPS = {
    "lab engines": ("lab", ("tests/lab/", "tests/integration/test_pool.py")),
    "lab sweeps": ("lab", ("tests/integration/test_lab_faults.py", "tests/integration/test_story.py")),
    "registry": ("public", ("tests/registry/",)),
    "cluster": ("cluster", ("tests/slurm/", "tests/faults/test_faults.py::test_kills_on_a_cluster")),
    "leftovers": ("", ("tests/contract/test_trials.py::test_nothing_outlives",)),
}
"""Groups by name: a fixture that is kept until a pytest process ends, and the tests that may use it. There are two labs
(tests/lab/running.py), so that two processes may have one; their groups take about as long as each other. Of the other
fixtures, a second process would wait for the first, or start its own. The last group has no fixture: its tests count
what they leave on this machine.
"""
LONG_FIRST = ("tests/integration/test_examples.py", "tests/integration/", "tests/slurm/", "tests/contract/", "")
"""A long test that begins last keeps one processor busy and leaves the others idle."""


def group_of(nodeid: str) -> str | None:
    if "slurm" in nodeid.partition("[")[2]:  # a contract test on that engine
        return "cluster"
    return next((name for name, (_, starts) in GROUPS.items() if nodeid.startswith(starts)), None)


def arrange(items: list[pytest.Item]) -> None:
    """Put long tests first. Raises UsageError if a test that uses a group's fixture is in no group that has it."""
    kept = {fixture for fixture, _ in GROUPS.values()}
    for item in items:
        group = group_of(item.nodeid)
        own = {GROUPS[group][0]} if group else set()
        for fixture in kept & set(getattr(item, "fixturenames", ())) - own:
            raise pytest.UsageError(f"tests/groups.py: {item.nodeid} uses {fixture!r} and belongs to a group of it")
    items.sort(key=lambda item: next(place for place, start in enumerate(LONG_FIRST) if item.nodeid.startswith(start)))
