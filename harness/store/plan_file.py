"""Writes a plan as plan.json, without credentials: users copy a run's directory and attach it to bug reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from harness import masking
from harness.model import Build, Host, Image, Plan, Program, Pull, Scenario, Series, Source, Variant, VersionRow

SCHEMA = 1


def plan_to_json(
    plan: Plan,
    *,
    payload: Callable[[Variant], str] | None = None,
    inputs: Callable[[Scenario], Mapping[str, str]] | None = None,
    dockerfile: Callable[[Build], str | None] | None = None,
) -> dict[str, Any]:
    """Return the plan as plain data, for plan.json. `payload` returns a hash of what is copied into a variant's trials
    (script, agent); `inputs` returns the sha256 of each file of a scenario, by path; `dockerfile` returns the sha256 of
    a build's Dockerfile, or None if it cannot be read.
    """
    return {
        "schema": SCHEMA,
        "matrix": plan.matrix.name,
        "file": str(plan.matrix.path),
        "seed": plan.seed,
        "search": plan.search,
        "stop": asdict(plan.stop),
        "trials": {"least": plan.trials.least, "most": plan.trials.most},
        "include": list(map(dict, plan.matrix.include)),
        "exclude": list(map(dict, plan.matrix.exclude)),
        "hosts": [_host_json(host) for host in dict.fromkeys(row.lane.host for row in plan.rows)],
        "series": [
            {"name": series.name, "baseline": series.baseline, "images": list(map(_image_json, series.images))}
            for series in _series_of(plan)
        ],
        "scenarios": [
            {**_scenario_json(scenario), "files": dict(inputs(scenario)) if inputs else {}}
            for scenario in dict.fromkeys(row.variant.scenario for row in plan.rows)
        ],
        "dockerfiles": {} if dockerfile is None else _dockerfiles(plan, dockerfile),
        "blocks": [{**_row_json(row), "payload": payload and payload(row.variant)} for row in plan.rows],
    }


def _dockerfiles(plan: Plan, dockerfile: Callable[[Build], str | None]) -> dict[str, str]:
    """Return the sha256 of each Dockerfile that could be read, by the folder of its build."""
    sources = [image.source for series in _series_of(plan) for image in series.images]
    builds = {str(source.context): source for source in sources if isinstance(source, Build)}
    return {place: name for place, source in builds.items() if (name := dockerfile(source)) is not None}


def _host_json(host: Host) -> dict[str, Any]:
    gpus = host.gpus if isinstance(host.gpus, str) else list(host.gpus)
    engine = list(host.pool) or host.engine
    entry = {"name": host.name, "engine": engine, "gpus": gpus, "parallel": host.parallel}
    return entry if host.request is None else {**entry, "container": host.request.container}


def _series_of(plan: Plan) -> Iterable[Series]:
    return dict.fromkeys(row.series for row in plan.rows)


def _image_json(image: Image) -> dict[str, Any]:
    return {
        "version": image.version,
        "yanked": image.yanked,
        "made": _source_json(image.source),
        "entrypoint": image.keep_entrypoint,
        "environment": masking.told(image.environment),
    }


def _source_json(source: Source) -> dict[str, Any]:
    """Return the source of an image as JSON: exactly one of `pull`, `build` and `install`, with its details."""
    if isinstance(source, Pull):
        return {"pull": source.reference}
    if isinstance(source, Build):
        return {"build": str(source.context), "args": masking.told(source.args)}
    return {
        "install": list(map(masking.without_credentials, source.packages)),
        "base": source.base,
        "python": source.python,
        "exact": source.exact,
        "hashes": dict(source.hashes),
    }


def _scenario_json(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as JSON. Its `settings` decide how a trial runs and is judged; runs with different settings are
    not compared."""
    return {
        "name": scenario.name,
        "title": scenario.title,
        "script": scenario.script.name if scenario.script else None,
        "program": _program_json(scenario.program),
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
            "environment": masking.told(scenario.environment),
            "network": scenario.network,
            "cap_add": list(scenario.cap_add),
        },
    }


def _program_json(program: Program | None) -> dict[str, Any] | None:
    if program is None:
        return None
    path = program.path.name if program.path else None
    return {
        "path": path, "module": program.module, "args": list(program.args), "steps_are": program.steps_are,
        "printed": dict(program.printed),
    }  # fmt: skip


def _row_json(row: VersionRow) -> dict[str, Any]:
    return {
        "series": row.series.name,
        "host": row.lane.host.name,
        "gpu": row.lane.gpu,
        "scenario": row.variant.scenario.name,
        "params": dict(row.variant.params),
        "cells": [{"id": cell.id, "image": cell.image.version, "excluded": cell.excluded} for cell in row.cells],
    }
