"""A plan as plain data: plan.json."""

from __future__ import annotations

from typing import Any

from harness.model import Block, Build, Host, Image, Plan, Pull, Series

SCHEMA = 1


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, for plan.json."""
    return {
        "schema": SCHEMA,
        "matrix": plan.matrix.name,
        "file": str(plan.matrix.path),
        "seed": plan.seed,
        "trials": {"least": plan.trials.least, "most": plan.trials.most},
        "hosts": [_host_json(host) for host in dict.fromkeys(block.lane.host for block in plan.blocks)],
        "series": [_series_json(series) for series in dict.fromkeys(block.series for block in plan.blocks)],
        "blocks": [_block_json(block) for block in plan.blocks],
    }


def _host_json(host: Host) -> dict[str, Any]:
    gpus = host.gpus if isinstance(host.gpus, str) else list(host.gpus)
    return {"name": host.name, "engine": host.engine, "gpus": gpus, "parallel": host.parallel}


def _series_json(series: Series) -> dict[str, Any]:
    images = [
        {"version": image.version, "source": source_text(image), "yanked": image.yanked} for image in series.images
    ]
    return {"name": series.name, "baseline": series.baseline, "images": images}


def _block_json(block: Block) -> dict[str, Any]:
    return {
        "series": block.series.name,
        "host": block.lane.host.name,
        "gpu": block.lane.gpu,
        "scenario": block.variant.scenario.name,
        "params": dict(block.variant.params),
        "cells": [
            {"id": cell.id, "image": cell.image.version, "excluded": cell.excluded.why if cell.excluded else None}
            for cell in block.cells
        ],
    }


def source_text(image: Image, *, process: bool = False) -> str:
    """How an image is had, in a few words; `process`: on a host without containers."""
    mark = " (yanked)" if image.yanked else ""
    if isinstance(image.source, Pull):
        return f"pull {image.source.reference}{mark}"
    if isinstance(image.source, Build):
        args = " ".join(f"{name}={value}" for name, value in image.source.args)
        return f"build {image.source.context} with {args}{mark}"
    python = f"Python {image.source.python}" if image.source.python else "the running Python"
    onto = f"in a virtual environment of {python}" if process else f"over {image.source.base}"
    return f"install {' '.join(image.source.packages)} {onto}{mark}"
