"""The shipped examples, on real wheels whose history is public: what the README promises must come true."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ROOT, Harness
from tests.nightly import NIGHTLY, at_night

pytestmark = pytest.mark.index
BY_DAY = [] if NIGHTLY else ["--trials", "2:3"]
"""Fewer launches than the files ask for, which `make nightly` makes."""


def sweep(harness: Harness, example: str, *options: str, code: int) -> dict[str, Any]:
    ended = harness.run("sweep", str(ROOT / "examples" / f"{example}.yaml"), *options, timeout_s=600)
    assert ended.code == code, ended.err
    return harness.summary(example)


def boundaries(summary: dict[str, Any], **params: object) -> list[tuple[str, str, str]]:
    """Return (metric, old side, new side) of each finding of a variant, sorted."""
    old, new = ("last_good", "last_bad", "last_milder"), ("first_bad", "first_good", "first_worse")
    return sorted(
        (each["metric"], *[next(each[name] for name in names if name in each) for names in (old, new)])
        for each in summary["findings"]
        if each["params"] == params and not each["consequence_of"]
    )


def needs_python(version: str) -> None:
    """Skip without an interpreter that some wheels need."""
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    found = shutil.which(f"python{version}") or any(list(root.glob(f"{version}.*")) for root in roots)
    if not found:
        pytest.skip(f"no Python {version} here")


def test_quickstart_names_both_leaks_and_clears_the_control(harness: Harness) -> None:
    """The first result that a new user sees must be right: two leaks, their fixes, and a cache that is not a leak."""
    summary = sweep(harness, "quickstart", *BY_DAY, code=1)
    first = [("memory", "6.2.0", "6.3.0"), ("memory", "6.3.1", "6.3.2")]
    assert boundaries(summary, op="pop") == [*first, ("memory", "6.4.4", "6.5.0"), ("memory", "6.6.3", "6.6.4")]
    assert boundaries(summary, op="read") == first
    assert all(finding["confirmed"] for finding in summary["findings"])
    assert {cell["verdict"] for cell in summary["cells"] if cell["series"] == "regex"} == {"plateau"}


def test_serve_names_the_version_whose_server_leaks(harness: Harness) -> None:
    summary = sweep(harness, "serve", "--only", "concurrency=4", code=1)
    assert boundaries(summary, concurrency=4) == [("memory", "6.2.0", "6.3.0"), ("memory", "6.3.1", "6.3.2")]


@pytest.mark.docker
@at_night("takes a minute; by day test_sweep.py changes the engine")
def test_the_same_series_in_containers_says_the_same(harness: Harness) -> None:
    """Changing one line, the engine, must not change the answer."""
    summary = sweep(harness, "docker", "--only", "headers op=pop", "--trials", "2:4", code=1)
    assert boundaries(summary, op="pop") == [
        ("memory", "6.2.0", "6.3.0"), ("memory", "6.3.1", "6.3.2"),
        ("memory", "6.4.4", "6.5.0"), ("memory", "6.6.3", "6.6.4"),
    ]  # fmt: skip


def test_a_segfault_in_one_version_is_found_in_the_middle(harness: Harness) -> None:
    """Only orjson 3.7.9 crashes: neither neighbour may be accused."""
    needs_python("3.10")
    summary = sweep(harness, "orjson", *BY_DAY, code=1)
    assert boundaries(summary) == [("outcome", "3.7.8", "3.7.9"), ("outcome", "3.7.9", "3.7.10")]
    assert {cell["signal"] for cell in summary["cells"] if cell["verdict"] == "crash"} == {11}


@at_night("half a minute of launches; by day the quickstart finds leaks and repairs in real wheels")
def test_a_leak_of_eighty_bytes_and_its_repair(harness: Harness) -> None:
    """protobuf 4.21.0 to 4.24.2: the version that fixes it differs from its neighbour in the patch number only."""
    summary = sweep(harness, "protobuf", code=1)
    leaks = [one for one in boundaries(summary) if one[0] == "memory"]  # its steps became permanently slower in 4.21.0
    assert leaks == [("memory", "3.20.3", "4.21.0"), ("memory", "4.24.2", "4.24.3")]
    rates = [cell["rate_kib_per_step"] for cell in summary["cells"] if cell["verdict"] == "leak"]
    assert rates == pytest.approx([20 * 80 / 1024] * 2, rel=0.02)


@at_night("half a minute of launches; by day the quickstart finds two leaks and their repairs")
def test_two_small_leaks_have_each_their_own_repair(harness: Harness) -> None:
    """msgspec: one leak is below the default limit, and one version has a fix for one leak but not for the other."""
    summary = sweep(harness, "msgspec", code=1)
    leaking: dict[str, list[str]] = {"raw": [], "pattern": []}
    for cell in summary["cells"]:
        if cell["verdict"] == "leak":
            leaking[cell["params"]["what"]].append(cell["image"])
    assert leaking == {"raw": ["0.17.0", "0.18.6"], "pattern": ["0.17.0", "0.18.6", "0.19.0"]}
    assert {one["first_good"] for one in summary["findings"] if "first_good" in one} == {"0.19.0", "0.20.0"}
    assert [one["cause"] for one in summary["attribution"]] == ["image", "image"]
