"""Reads the GPUs of a host from the agent's probe, and checks that a trial saw the GPUs that it requested.

The probe is the agent's `start.py gpus`. On a container engine it runs in a container with all GPUs, because only the
NVIDIA Container Toolkit makes them visible. On a process host it runs in a separate process, because a driver that
hangs would otherwise hang the harness too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from harness.errors import ImageUnavailable, InfrastructureError
from harness.model import Image, Prepared
from harness.model.matrix import Gpu
from harness.model.measured import Facts
from harness.model.watching import Say
from harness.run import owners
from harness.run.engine import ImageStore, write_files
from harness.run.trial.payload import agent_files

PROBE_S = 60
"""Seconds after which a probe without an answer means that the driver hangs."""
SUBSET = "CUDA_VISIBLE_DEVICES"


class _Odd(ValueError):
    """A value that no working driver reports. The message describes the value."""


def first_available(store: ImageStore, images: Sequence[Image], say: Say, *, place: str, remedy: str) -> Prepared:
    """Return the first of `images` that can be prepared, so that a probe can run in it. Raises InfrastructureError,
    with `remedy` if `images` is empty, and ImageUnavailable if none of them can be prepared.
    """
    if not images:
        raise InfrastructureError(f"there is no image to run the probe in; {remedy}", place=place)
    for image in images[:-1]:
        with suppress(ImageUnavailable):  # reported when its cells are run
            return store.prepare(image, say)
    return store.prepare(images[-1], say)


def parse_gpus(output: str, *, place: object) -> tuple[Gpu, ...] | None:
    """Return the GPUs in the probe's output; None if the probe found no driver library. Raises InfrastructureError for
    a driver's error and for malformed output, which is possible because the probe may run in an untrusted image.
    """
    line = next((line for line in reversed(output.splitlines()) if line.startswith("{")), "")
    try:
        report = json.loads(line)
        if problem := report.get("gpu_problem"):
            raise InfrastructureError(f"{str(problem)[:200]}; see `nvidia-smi` on that host", place=place)
        if "gpus" not in report:
            return None
        gpus = tuple(
            Gpu(**{name: kind(fields[name]) for name, kind in KINDS.items() if fields.get(name) is not None})
            for fields in report["gpus"]
        )
        if len({gpu.uuid for gpu in gpus}) < len(gpus):
            raise _Odd("two GPUs have the same UUID")
        return gpus
    except _Odd as error:
        raise InfrastructureError(
            f"the driver's list of GPUs is invalid: {error}; see `nvidia-smi -L` there", place=place
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        last = " ".join(output.split())[-200:] or "nothing"
        raise InfrastructureError(f"the GPUs could not be listed; the probe printed: {last}", place=place) from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 200:
        raise _Odd(f"{str(value)[:200]!r} is not a valid name")
    return value


KINDS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("uuid", "name", "compute_capability", "driver", "cuda", "parent"), _text),
    **dict.fromkeys(("index", "memory_mib", "processes"), int),
    **dict.fromkeys(("ecc", "mig"), bool),
    "power_limit_w": float,
}


def of_this_machine(*, place: object) -> tuple[Gpu, ...]:
    """Return the GPUs that a process on this machine sees; () if it has no driver. Raises InfrastructureError."""
    with owners.folder_for_files() as folder:
        write_files(agent_files(), folder)
        command = [sys.executable, "-B", str(folder / "start.py"), "gpus"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)
        except subprocess.TimeoutExpired as error:
            text = f"the NVIDIA driver did not answer within {PROBE_S} s; see `nvidia-smi`, or restart this machine"
            raise InfrastructureError(text, place=place) from error
    return parse_gpus(done.stdout or done.stderr, place=place) or ()


def mismatch(requested: Sequence[Gpu], facts: Facts) -> str:
    """Return a message if the GPUs that a trial's agent reports differ from those `requested`; "" if they agree, or if
    none were requested.

    Such a trial is discarded, because figures of another card could lead to a false finding. On a process host every
    process sees all cards, so those that CUDA_VISIBLE_DEVICES does not list are ignored.
    """
    if not requested:
        return ""
    wanted = {gpu.uuid for gpu in requested}
    seen = {str(gpu.uuid): str(gpu.name) for gpu in facts.gpus or ()}
    chosen = {word.strip() for word in (facts.environment or {}).get(SUBSET, "").split(",")}
    if chosen & set(seen):
        seen = {uuid: name for uuid, name in seen.items() if uuid in chosen}
    if set(seen) == wanted:
        return ""
    inside = ", ".join(f"{name} ({uuid})" for uuid, name in seen.items()) or (facts.gpu_problem or "none")
    return f"not the requested GPU: requested {', '.join(map(str, requested))}; the trial sees: {inside}"
