"""Writes the report of `harness doctor` as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness import exit_codes
from harness.model.answers.doctor import Checkup, HostCheck, HostCondition, ImageFit

SCHEMA = 1


def to_json(checkup: Checkup) -> dict[str, Any]:
    """Return the checkup as JSON-ready data. Every field is always present; unknown values are None."""
    return {
        "schema": SCHEMA,
        "matrix": checkup.matrix,
        "exit_code": exit_code(checkup),
        "hosts": [_host_json(host) for host in checkup.hosts],
        "images": [_fit_json(fit) for fit in checkup.fits],
    }


def exit_code(checkup: Checkup) -> int:
    return exit_codes.UNAVAILABLE if checkup.problems else exit_codes.OK


def _host_json(host: HostCheck) -> dict[str, Any]:
    found = host.condition or HostCondition(engine="")
    return {
        "name": host.host.name,
        "machine": host.host.machine or None,
        "engine": host.host.engine,
        "problem": host.problem,
        "version": found.engine or None,
        "api": found.api,
        "gpu_way": found.gpu_way,
        "gpus": [asdict(gpu) for gpu in host.gpus],
        "lanes": [str(lane) for lane in host.lanes] if host.problem is None else [],
        "lease": found.holder,
        "room": asdict(found.room) if found.room else None,
        "disk_bytes": host.host.disk_bytes,
        "kept_bytes": found.kept_bytes,
        "memory_limit_bytes": found.memory_limit_bytes,
        "images": asdict(host.wanted) if host.wanted else None,
        "noise": {
            name: {"spread": dict(noise.spread), "pairs": dict(noise.freedom)} for name, noise in host.noise.items()
        },
        "control_ms": host.control_ms,
        "odd": host.odd or None,
        "leftovers": list(found.leftovers),
    }


def _fit_json(fit: ImageFit) -> dict[str, Any]:
    return {
        **{name: getattr(fit, name) for name in ("host", "series", "state", "why", "at_hand", "bytes")},
        "gpu": None if fit.gpu is None else fit.gpu.uuid,
        "image": fit.version,
    }
