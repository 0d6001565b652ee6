"""`harness narrow` on a real Docker Engine: two images differ in a library on LD_LIBRARY_PATH and in a variable."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from harness.flows.context import RunContext
from harness.matrix import load_matrix
from harness.narrow import flow as narrow_sides
from harness.narrow.coupling import couple
from harness.narrow.hybrids import Sides, grafted_hybrid, not_loaded
from harness.narrow.inventory import components
from harness.narrow.records import Hybrid
from harness.plan.cells import select
from harness.run.engine import Kept
from tests.integration.conftest import LOCAL_BASE, ROOT, Harness
from tests.nightly import at_night

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the library is built with gcc"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example, with both of its libraries compiled."""
    found = tmp_path / "narrow"
    shutil.copytree(ROOT / "examples" / "narrow", found)
    for wrong in (0, 1):
        built = f"libmean.so.1.{wrong + 1}"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", f"-DWRONG={wrong}", "-o", built, "mean.c"], cwd=found / "image", check=True
        )
    return found


def remove(both: narrow_sides.BothSides, reference: str) -> None:
    both.engine.remove(Kept(reference=reference, name=reference, made=True, layers={}), lambda text: None)


def test_a_hybrid_maps_the_library_that_it_was_given_and_fails_with_the_bad_one_alone(folder: Path) -> None:
    environ = {"HARNESS_BASE": LOCAL_BASE, **os.environ}
    plan = select(load_matrix(folder / "library.yaml", environ=environ), seed=1)
    context = RunContext(environ=environ, progress=MagicMock(), stopped=threading.Event())
    with narrow_sides.both_sides(plan, context, digests={}) as both:
        looked = narrow_sides.looked_into(both)
        groups = couple(components(looked["A"], looked["B"]), a=looked["A"], b=looked["B"], extras={}).groups
        assert [group.id for group in groups] == ["libmean.so", "LEVEL"]
        sides = Sides(
            images={side: cell.image for side, cell in both.cells.items()},
            references={side: each.reference for side, each in both.made.items()},
            inventories=looked,
            groups=groups,
        )
        failed = {}
        for name in ("libmean.so", "LEVEL"):
            hybrid = Hybrid(base="A", from_b=frozenset({name}))
            cell = replace(both.cells["A"], image=grafted_hybrid(sides, hybrid))
            had = narrow_sides.prepared(cell, both.engine, context)
            seen, failed[name] = both.look(cell, had)
            assert not not_loaded(sides, hybrid, seen)
            assert seen.variables["LEVEL"] == ("2" if name == "LEVEL" else "1")
            remove(both, had.reference)
        for each in both.made.values():
            remove(both, each.reference)
    assert "a wrong mean" in failed["libmean.so"]
    assert not failed["LEVEL"]


@at_night("some 25 launches in containers; by day a hybrid maps the library that it was given")
def test_the_library_of_an_image_is_named_and_proven(folder: Path) -> None:
    harness = Harness(folder)
    assert harness.run("sweep", "library.yaml").code == 1
    dry = harness.run("narrow", "latest", "1", "--dry-run")
    assert (dry.code, "LEVEL" in dry.out, "libmean" in dry.out) == (0, True, False), dry.err
    done = harness.run("narrow", "latest", "1", timeout_s=600)
    assert done.code == 0, done.err
    assert "culprit: library libmean.so.1.1 → libmean.so.1.2; 1 with it is bad, 2 without it is good" in done.out
