"""The order of the tests, and which of them run one after the other in one pytest process: `--dist loadgroup`."""

from __future__ import annotations

import pytest

GROUPS = {
    "lab": ("tests/lab/", *(f"tests/integration/test_{name}.py" for name in ("lab_faults", "pool", "story"))),
    "public": ("tests/registry/",),
    "cluster": ("tests/slurm/",),
}
"""Groups by the fixture that is kept until a pytest process ends: a second process would wait for
it, or start its own.
"""
LONG_FIRST = ("tests/integration/test_examples.py", "tests/integration/", "tests/slurm/", "tests/contract/", "")
"""A long test that begins last keeps one processor busy and leaves the others idle."""


def group_of(nodeid: str) -> str | None:
    if "slurm" in nodeid.partition("[")[2]:  # a contract test on that engine
        return "cluster"
    return next((name for name, starts in GROUPS.items() if nodeid.startswith(starts)), None)


def arrange(items: list[pytest.Item]) -> None:
    """Put long tests first. Raises UsageError if a test that uses a group's fixture is not in that group."""
    for item in items:
        for name in set(GROUPS) & set(getattr(item, "fixturenames", ())):
            if group_of(item.nodeid) != name:
                raise pytest.UsageError(f"tests/groups.py: {item.nodeid} uses {name!r} and belongs to that group")
    items.sort(key=lambda item: next(place for place, start in enumerate(LONG_FIRST) if item.nodeid.startswith(start)))
