"""A matrix of versions of a real wheel with a planted fault, and what a sweep finds there."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.integration.conftest import ROOT, Harness

PLANTED = """\
version: 1
series:
  six:
    base: ${{HARNESS_BASE:-harness-base:bookworm}}
    install: ["six=={{version}}"]
    versions: {versions}
    environment: {{PLANTED_VERSION: "{{version}}"}}
hosts:
  here: {{engine: {engine}}}
scenarios:
  planted:
    script: {root}/scenarios/planted.py
    params: {params}
    timeout: 60s
    steps: {steps}
    limits: {limits}
trials: {{least: 2, most: 3}}
"""


NO_LEVELS = (
    "{step_time: none, late_step_time: none, tail: none, cpu_time: none, peak_memory: none, setup_time: none, "
    "first_step: none, output: none, shm: none}"
)
"""Allows exit code 0 on a machine that may be too busy to keep a limit, and whose /dev/shm other programs use."""


THREE = '["1.14.0", "1.15.0", "1.16.0"]'


def planted(
    *, engine: str, params: str, versions: str = THREE, steps: str = "{first: 200, budget: 1000}", limits: str = "{}"
) -> str:
    return PLANTED.format(engine=engine, params=params, versions=versions, steps=steps, limits=limits, root=ROOT)


def changes(summary: dict[str, Any]) -> list[tuple[object, ...]]:
    return [(each["metric"], each["kind"], *[each[name] for name in SIDES[each["kind"]]]) for each in causes(summary)]


def causes(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the findings that no other finding explains."""
    return [each for each in summary["findings"] if not each["consequence_of"]]


needs_two_processors = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor runs nothing side by side")


def trials(harness: Harness) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in harness.trial_files()]


SIDES = {
    "first_bad": ("last_good", "first_bad"),
    "first_fixed": ("last_bad", "first_good"),
    "bad_from_start": ("oldest_bad",),
}
