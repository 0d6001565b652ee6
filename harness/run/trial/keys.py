"""Computes the key of a trial: trials with the same key ran the same image and scenario under the same conditions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from harness.model import Cell
from harness.run.engine import Prepared
from harness.run.trial.payload import payload_hash


def trial_key(cell: Cell, *, prepared: Prepared, facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of everything that affects a trial's result, in hex: a later run may reuse trials with this
    key. `facts`: the engine's part of the lane's fingerprint."""
    scenario = cell.variant.scenario
    content = {
        "format": 1,
        "image": prepared.digest,
        "entrypoint": cell.image.keep_entrypoint,
        "payload": payload_hash(cell.variant),
        "steps": [scenario.steps.first, scenario.steps.budget, scenario.steps.time_s],
        "timeout_s": scenario.timeout_s,
        "memory_bytes": scenario.memory_bytes,
        "shm_bytes": scenario.shm_bytes,
        "ulimits": scenario.ulimits,
        "network": scenario.network,
        "cap_add": scenario.cap_add,
        "environment": [scenario.environment, cell.image.environment],
        "lane": [cell.lane.host.engine, cell.lane.gpu, [gpu.fingerprint for gpu in cell.lane.gpus], facts],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
