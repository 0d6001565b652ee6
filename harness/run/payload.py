"""What is copied in for one trial: the agent, the scenario with its files, and the job."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.errors import MatrixError
from harness.model import Scenario, Variant
from harness.run.engine import Payload

ANSWER_TIMEOUT_S = 300.0
TOLD_ENVIRONMENT = (
    "CUDA_*", "CUDNN_*", "NVIDIA_*", "NCCL_*", "CUBLAS_*", "TF_*", "TENSORFLOW_*", "PYTORCH_*", "TORCH_*", "XLA_*",
    "JAX_*", "OMP_*", "MKL_*", "OPENBLAS_*", "KMP_*", "MALLOC_*", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONMALLOC",
)  # fmt: skip
"""Names of the image's variables whose values a result may tell; of the others only the names."""

AGENT = Path(__file__).parents[1] / "agent"
"""The agent's source. To us it is data: copied, never imported."""


def pack(variant: Variant, *, extras: Mapping[str, Any] | None = None) -> Payload:
    """The payload of one trial, with a marker of its own. `extras` are laid over job.json's fields.

    Raises MatrixError if the script or one of the files is gone.
    """
    job = {**_job(variant), "marker": secrets.token_hex(16), **(extras or {})}
    return Payload(job=job, files={**_agent_files(), **dict(_scenario_files(variant.scenario))})


def payload_hash(variant: Variant) -> str:
    """A stable hash of all that a trial of `variant` would copy in: files, job without marker, agent version."""
    digest = hashlib.sha256(f"agent {_agent_constant('VERSION')}\n".encode())
    digest.update(json.dumps(_job(variant), sort_keys=True).encode())
    for name, content in sorted(_scenario_files(variant.scenario)):
        digest.update(f"\n{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _job(variant: Variant) -> dict[str, Any]:
    scenario = variant.scenario
    return {
        "protocol": _agent_constant("PROTOCOL"),
        "script": f"scenario/{scenario.script.name}" if scenario.script else None,
        "params": dict(variant.params),
        "command": list(variant.command) or None,
        "step_pattern": scenario.step_pattern,
        "judge_exit": scenario.judge_exit,
        "looks": list(scenario.steps.looks()),
        "timeout_s": scenario.timeout_s,
        "answer_timeout_s": ANSWER_TIMEOUT_S,
        "environment": list(TOLD_ENVIRONMENT),
    }


@functools.cache
def _agent_constant(name: str) -> Any:
    found = re.search(rf"^{name} = (.+)$", (AGENT / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return ast.literal_eval(found[1])


def _agent_files() -> dict[str, bytes]:
    """`start.py` at the top, the package `harness_agent` beside it."""
    files = {f"harness_agent/{path.relative_to(AGENT)}": path.read_bytes() for path in sorted(AGENT.rglob("*.py"))}
    files["start.py"] = files.pop("harness_agent/start.py")
    return files


def _scenario_files(scenario: Scenario) -> Iterator[tuple[str, bytes]]:
    """The script, and `files:` at their places relative to the script's folder (else under their own names)."""
    paths = [*([scenario.script] if scenario.script else []), *scenario.files]
    for path in paths:
        home = scenario.script.parent if scenario.script else path.parent
        name = path.relative_to(home) if path.is_relative_to(home) else Path(path.name)
        try:
            yield from _read(path, name)
        except OSError as error:
            raise MatrixError(f"{scenario.where}: {path}: cannot be read: {error.strerror}") from error


def _read(path: Path, name: Path) -> Iterator[tuple[str, bytes]]:
    if not path.is_dir():
        yield f"scenario/{name.as_posix()}", path.read_bytes()
        return
    for inner in sorted(path.rglob("*")):
        if inner.is_file() and "__pycache__" not in inner.parts:
            yield f"scenario/{(name / inner.relative_to(path)).as_posix()}", inner.read_bytes()
