"""A plan as plain data: plan.json. No credential is in it: a run's directory is copied and attached to reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from harness import private
from harness.model import Block, Build, Host, Image, Plan, Pull, Scenario, Series, Source, Variant

SCHEMA = 1


def to_json(
    plan: Plan,
    *,
    payload: Callable[[Variant], str] | None = None,
    inputs: Callable[[Scenario], Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """The plan as plain data, for plan.json. `payload` hashes what a variant copies into its trials (script, agent);
    `inputs` tells a scenario's own files, script included: place -> sha256."""
    return {
        "schema": SCHEMA,
        "matrix": plan.matrix.name,
        "file": str(plan.matrix.path),
        "seed": plan.seed,
        "trials": {"least": plan.trials.least, "most": plan.trials.most},
        "hosts": [_host_json(host) for host in dict.fromkeys(block.lane.host for block in plan.blocks)],
        "series": [_series_json(series) for series in dict.fromkeys(block.series for block in plan.blocks)],
        "scenarios": [
            {**_scenario_json(one), "files": dict(inputs(one)) if inputs else {}}
            for one in dict.fromkeys(block.variant.scenario for block in plan.blocks)
        ],
        "blocks": [{**_block_json(block), "payload": payload and payload(block.variant)} for block in plan.blocks],
    }


def _host_json(host: Host) -> dict[str, Any]:
    gpus = host.gpus if isinstance(host.gpus, str) else list(host.gpus)
    return {"name": host.name, "engine": host.engine, "gpus": gpus, "parallel": host.parallel}


def _series_json(series: Series) -> dict[str, Any]:
    return {"name": series.name, "baseline": series.baseline, "images": [_image_json(one) for one in series.images]}


def _image_json(image: Image) -> dict[str, Any]:
    return {
        "version": image.version,
        "source": source_text(image),
        "yanked": image.yanked,
        "made": _made(image.source),
        "entrypoint": image.keep_entrypoint,
        "environment": private.told(image.environment),
    }


def _made(source: Source) -> dict[str, Any]:
    """How an image is had, for programs; exactly one of the three."""
    if isinstance(source, Pull):
        return {"pull": source.reference}
    if isinstance(source, Build):
        return {"build": str(source.context), "args": private.told(source.args)}
    return {
        "install": [private.without_credentials(one) for one in source.packages],
        "base": source.base,
        "python": source.python,
    }


def _scenario_json(scenario: Scenario) -> dict[str, Any]:
    """`settings` is what decides how a trial runs and is judged: two runs that differ in it are not compared."""
    return {
        "name": scenario.name,
        "title": scenario.title,
        "script": scenario.script.name if scenario.script else None,
        "command": list(scenario.command),
        "step_pattern": scenario.step_pattern,
        "settings": {
            "steps": asdict(scenario.steps),
            "limits": asdict(scenario.limits),
            "judge_exit": scenario.judge_exit,
            "timeout_s": scenario.timeout_s,
            "memory_bytes": scenario.memory_bytes,
            "shm_bytes": scenario.shm_bytes,
            "ulimits": [list(limit) for limit in scenario.ulimits],
            "environment": private.told(scenario.environment),
            "network": scenario.network,
            "cap_add": list(scenario.cap_add),
        },
    }


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
        args = " ".join(f"{name}={value}" for name, value in private.told(image.source.args).items())
        return f"build {image.source.context} with {args}{mark}"
    python = f"Python {image.source.python}" if image.source.python else "the running Python"
    onto = f"in a virtual environment of {python}" if process else f"over {image.source.base}"
    return f"install {private.without_credentials(' '.join(image.source.packages))} {onto}{mark}"
