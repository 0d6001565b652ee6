"""Packs the files of one trial: the agent, the scenario with its files, and the job."""

from __future__ import annotations

import functools
import hashlib
import json
import marshal
import os
import secrets
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from harness import amounts
from harness.errors import InfrastructureError, MatrixError
from harness.model import Cell, Mount, Prepared, Scenario, Variant, hook_files
from harness.run.engine import Content, OnDisk, Payload, pieces_of, sha256_of, size_of
from harness.store import inputs

ANSWER_TIMEOUT_S = 300.0
"""Seconds for which the agent waits for the answer to a look."""
TOLD_ENVIRONMENT = (
    "CUDA_*", "CUDNN_*", "NVIDIA_*", "NCCL_*", "CUBLAS_*", "TF_*", "TENSORFLOW_*", "PYTORCH_*", "TORCH_*", "XLA_*",
    "JAX_*", "OMP_*", "MKL_*", "OPENBLAS_*", "KMP_*", "MALLOC_*", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONMALLOC",
)  # fmt: skip
"""Patterns of the environment variables whose values a result may contain. Of others it contains only the names."""

AGENT = Path(__file__).parents[2] / "agent"
"""The folder of the agent's source. The harness treats it as data: it copies the source but never imports it."""
LARGE_BYTES = 1 << 20
"""A larger file of a scenario is read in pieces whenever it is needed."""
MOST_BYTES = 4 << 30
"""The largest size of all files of a scenario together."""
CHECKED_HASH = (0b11).to_bytes(4, "little")
"""The flags of a compiled module (PEP 552) that Python compares with the hash of its source."""
START = "start.py"
"""The program that starts the agent. It is next to the agent's package, in the root of the trial."""


def pack(variant: Variant, *, extras: Mapping[str, Any] | None = None) -> Payload:
    """Return the payload of one trial, with a new random marker. `extras` override fields of job.json.

    Raises MatrixError if the script or one of the files is missing, or if two files have the same destination.
    """
    mounts = {"mounts": mounts_of(variant.scenario.data)} if variant.scenario.data else {}
    packed = _packed(variant.scenario, {**_job(variant), **mounts, "marker": secrets.token_hex(16), **(extras or {})})
    files = {START: packed.files[START]} if packed.job.get("in_place") else packed.files
    return replace(packed, files=files, agent={**packed.agent, **compiled_agent()})


def in_place(cell: Cell) -> dict[str, Any] | None:
    """Return the field `in_place` of job.json for a command that runs on the machine as it is, else None."""
    if not cell.in_place:
        return None
    return {
        "folder": cell.folder,
        "variables": cell.environment,
        "varied": cell.image.environment[0][0],
        "stop": list(cell.launched.scenario.stop),
    }


def keep_inputs(scenario: Scenario, directory: Path) -> dict[str, str]:
    """Write the script and `files:` of a scenario below the `directory` of a run; return {path relative to the script:
    sha256}. Raises MatrixError if a file cannot be read, InfrastructureError if one cannot be written.
    """
    packed = _packed(scenario, {}).files.items()
    files = {place[len(inputs.PREFIX) :]: content for place, content in packed if place.startswith(inputs.PREFIX)}
    hashes = {place: sha256_of(content).hexdigest() for place, content in files.items()}
    for place, content in files.items():
        if size_of(content) <= inputs.MOST_BYTES:
            inputs.keep(b"".join(pieces_of(content)), hashes[place], directory)
    return hashes


def agent_payload(job: Mapping[str, Any]) -> Payload:
    """Return a payload without a scenario, for a job of the agent alone."""
    agent = dict(agent_files())
    return Payload(job=job, files={START: agent.pop(START)}, agent={**agent, **compiled_agent()})


def mounts_of(mounts: Sequence[Mount]) -> list[dict[str, Any]]:
    """Return the mounts as a job has them."""
    return [{"at": mount.at, "from": str(mount.source)} for mount in mounts]


def payload_hash(variant: Variant) -> str:
    """Return a stable hash of everything that is copied into a trial of `variant`: the agent, the files, and the job
    without its marker and its time limit, which changes only the launches that reach it."""
    payload = _packed(variant.scenario, _job(variant))
    digest = hashlib.sha256(json.dumps({**payload.job, "timeout_s": None}, sort_keys=True).encode())
    for place, content in sorted({**payload.agent, **payload.files}.items()):
        mark = " executable" if place in payload.executable else ""
        digest.update(os.fsencode(f"\n{place} {size_of(content)}{mark}\n"))
        digest.update(_hash_of(content, *_state(content)) if isinstance(content, OnDisk) else content)
    return digest.hexdigest()


def _state(file: OnDisk) -> tuple[int, int]:
    """Return what changes when a file is written. Raises InfrastructureError."""
    try:
        details = file.path.stat()
    except OSError as error:
        raise InfrastructureError(f"{file.path}: cannot be read: {error.strerror}") from error
    return details.st_ino, details.st_mtime_ns


@functools.lru_cache(maxsize=1000)
def _hash_of(file: OnDisk, *state: int) -> bytes:
    """Return the SHA-256 of a large file, which each cell of a plan asks for. `state`: as of `_state`."""
    return sha256_of(file).digest()


def _packed(scenario: Scenario, job: Mapping[str, Any]) -> Payload:
    files: dict[str, Content] = {}
    executable = set()
    try:
        for place, path in sorted(_sources(scenario).items()):
            if path.exists() and not path.is_file():
                raise MatrixError(f"{path}: neither a file nor a folder", place=scenario.where)
            details = path.stat()
            is_large = details.st_size > LARGE_BYTES
            files[f"scenario/{place}"] = (
                OnDisk(path=path, size_bytes=details.st_size) if is_large else path.read_bytes()
            )
            if details.st_mode & stat.S_IXUSR:
                executable.add(f"scenario/{place}")
    except OSError as error:
        raise MatrixError(f"{error.filename}: cannot be read: {error.strerror}", place=scenario.where) from error
    if (total := sum(map(size_of, files.values()))) > MOST_BYTES:
        raise MatrixError(
            f"files: {amounts.size(total)} would be copied into each launch, and at most {amounts.size(MOST_BYTES)} may"
            " be; mount data instead, with mounts: of the scenario",
            place=scenario.where,
        )
    agent = dict(agent_files())
    return Payload(job=job, files={START: agent.pop(START), **files}, agent=agent, executable=frozenset(executable))


def _job(variant: Variant) -> dict[str, Any]:
    scenario = variant.scenario
    return {
        "script": f"scenario/{scenario.script.name}" if scenario.script else None,
        "params": dict(variant.params),
        "program": {
            "path": f"scenario/{scenario.file_place}" if scenario.program else None,
            "module": scenario.module,
            "args": list(variant.program_args),
            "launcher": list(variant.launcher),
            "steps_are": scenario.steps_are,
        }
        if scenario.is_program
        else None,
        "command": list(variant.command) or None,
        "serve": _serve(variant) if scenario.serve else None,
        "step_pattern": scenario.step_pattern,
        "printed": None if scenario.printed is None else dict(scenario.printed),
        "results": scenario.results,
        "judge_exit": scenario.limits.exit_only,
        "looks": list(scenario.steps.looks()),
        "look_times_s": list(scenario.steps.look_times_s()),
        "timeout_s": scenario.timeout_s,
        "answer_timeout_s": ANSWER_TIMEOUT_S,
        "environment": list(TOLD_ENVIRONMENT),
        **({"caches": [asdict(cache) for cache in scenario.caches]} if scenario.caches else {}),
    }


def _serve(variant: Variant) -> dict[str, Any]:
    scenario, (concurrency, rate) = variant.scenario, variant.load
    return {
        "port": scenario.port,
        "tls": scenario.tls,
        "ready": {"http": scenario.ready.http, "line": scenario.ready.line},
        "ready_timeout_s": scenario.ready.timeout_s,
        "requests": list(variant.requests),
        "file": f"scenario/{scenario.place_of(scenario.requests)}" if scenario.requests else None,
        "script": f"scenario/{scenario.place_of(scenario.client_script)}" if scenario.client_script else None,
        "generator": list(variant.filled(scenario.generator)) or None,
        "wanted": [limit.metric for limit in scenario.limits.metrics],
        "concurrency": concurrency,
        "rate": rate,
        "seed": 1,  # the same for all versions, so that the same requests come at the same times
        "timeout_s": scenario.request_timeout_s,
    }


@functools.cache
def compiled_agent() -> Mapping[str, bytes]:
    """Return the agent's modules, compiled by this Python, so that an image with the same Python need not compile them
    in every launch. Any other Python compiles the source. Python uses a compiled module only if its hash matches the
    source, so a trial's key need not cover these files.
    """
    files = {}
    for name, source in agent_files().items():
        place = Path(name)
        cached = place.parent / "__pycache__" / f"{place.stem}.{sys.implementation.cache_tag}.pyc"
        files[str(cached)] = compiled(name, source, flags=CHECKED_HASH)
    return files


def compiled(name: str, source: bytes, *, flags: bytes) -> bytes:
    """Return a module's source as Python caches it. `flags`: whether Python compares it with its source (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    return MAGIC_NUMBER + flags + source_hash(source) + marshal.dumps(code)


def agent_files() -> Mapping[str, bytes]:
    """Return the agent's files by path: `start.py`, and `harness_agent` with the hooks of installed packages."""
    files = {f"harness_agent/{path.relative_to(AGENT)}": path.read_bytes() for path in sorted(AGENT.rglob("*.py"))}
    for name, path in hook_files().items():
        files[f"harness_agent/scenario/hooks/{name}.py"] = path.read_bytes()
    files[START] = files.pop(f"harness_agent/{START}")
    return files


def _sources(scenario: Scenario) -> dict[PurePosixPath, Path]:
    """Return the files by their path in a trial's scenario folder. Raises MatrixError for two at one path."""

    def refuse(place: PurePosixPath, *paths: Path) -> NoReturn:
        raise MatrixError(
            f"files: {' and '.join(map(str, paths))} would both be copied to {place}; rename one, or keep them in "
            "different folders below the script's",
            place=scenario.where,
        )

    sources: dict[PurePosixPath, Path] = {}
    for named in scenario.carried:
        top = scenario.place_of(named)
        inner = [path for path in sorted(named.rglob("*")) if path.is_file()] if named.is_dir() else [named]
        for path in inner:
            below = path.relative_to(named)
            if "__pycache__" not in below.parts:
                other = sources.setdefault(top / below, path)
                if os.path.realpath(other) != os.path.realpath(path):
                    refuse(top / below, other, path)
    for place, path in sources.items():
        for folder in place.parents:
            if folder in sources:
                refuse(folder, sources[folder], path)
    return sources


# ---------------------------------------------------------------- keys


def trial_key(
    cell: Cell, *, prepared: Prepared, facts: Mapping[str, Any], inputs: Mapping[str, Any] | None = None
) -> str:
    """Return the SHA-256 of everything that affects a trial's result, in hex, except the time limit
    (`Trial.fits_within`): a later run may reuse trials with this key. `facts`: the engine's part of the lane's
    fingerprint; `inputs`: what identifies the mounts and the env file."""
    scenario = cell.variant.scenario
    content = {
        "format": 1,
        "image": prepared.digest,
        "entrypoint": cell.image.keep_entrypoint,
        "payload": payload_hash(cell.launched),
        **({"in_place": in_place(cell)} if cell.in_place else {}),
        "steps": [scenario.steps.first, scenario.steps.budget, scenario.steps.time_s],
        "memory_bytes": scenario.memory_bytes,
        "shm_bytes": scenario.shm_bytes,
        "ulimits": scenario.ulimits,
        "network": scenario.network,
        "cap_add": scenario.cap_add,
        "environment": [scenario.environment, cell.image.environment],
        **({"architecture": cell.lane.host.architecture} if cell.lane.host.architecture else {}),
        "lane": [cell.lane.host.engine, cell.lane.gpu, [gpu.fingerprint for gpu in cell.lane.gpus], facts],
        **({"client": sys.version} if scenario.serve else {}),
        **(inputs or {}),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
