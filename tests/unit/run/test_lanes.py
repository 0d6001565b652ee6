"""What a host's run gets ready before its first launch."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import create_autospec

from harness.flows import judging
from harness.model import Cell, Host, Image, Lane, Pull, Scenario, Trials, Variant, Watcher, Where
from harness.model.gpus import Gpu
from harness.run.engine import Engine, Lease
from harness.run.fetching import Images
from harness.run.lanes import HostRun
from harness.run.policy import Batch, BlockRun, CellRun, Journal

WHERE = Where(file="matrix.yaml", line=1, key="x")
NEW = Gpu(index=0, uuid="GPU-1", name="NVIDIA GeForce RTX 4090", compute_capability="8.9", driver="535.54")


class Nothing:
    """A policy that is done at once."""

    lazy = False

    def next(self) -> Batch:
        return Batch(runs=(), record={"kind": "done"})


def test_an_image_that_cannot_run_there_is_not_pulled() -> None:
    """Ten gigabytes of an image that the card is known to refuse, ahead of those that it can run."""
    lane = Lane(host=Host(name="new", engine="docker", gpus="all", where=WHERE), gpu="all", gpus=(NEW,))
    variant = Variant(scenario=Scenario(name="x", where=WHERE))
    cells = [
        Cell(image=Image(series="ngc", version=tag, source=Pull(reference=f"nvcr.io/nvidia/tensorflow:{tag}"),
                         where=WHERE), lane=lane, variant=variant)
        for tag in ("20.12-tf1-py3", "22.12-tf1-py3")
    ]  # fmt: skip
    assert [judging.referee().cannot_run(cell, None) is None for cell in cells] == [False, True]
    images: Any = create_autospec(Images, instance=True)
    run = HostRun(
        engine=create_autospec(Engine, instance=True), lease=create_autospec(Lease, instance=True), images=images,
        run_id="run", trials=Trials(), rng=random.Random(1), referee=judging.referee(),
        journal=create_autospec(Journal, instance=True), watcher=create_autospec(Watcher, instance=True),
        stopped=lambda: False, finished=lambda block: None,
    )  # fmt: skip
    run.run([BlockRun(cells=tuple(CellRun(cell=cell) for cell in cells), policy=Nothing())])
    ((ahead,), _) = images.pull_ahead.call_args
    assert [cell.image.version for cell in ahead] == ["22.12-tf1-py3"]
