"""How a container of a trial is started on a node, by each program that can. Pure.

None of the programs' own defaults is relied on: the network is off unless it is asked for, nothing of the node is
mounted, and no right is given. The program inside is `inside.py`, which takes the trial's files from its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.model import Scenario
from harness.run.docker.containers import PIDS_LIMIT

PYTHON = (
    'p=$(command -v python3 || command -v python) || { echo "no python3 or python in this image" >&2; exit 127; }; '
)
INSIDE = f'{PYTHON}exec "$p" -c "$0"'
KEPT_RUN = (
    'program=$1; name=$2; shift 2; "$program" run --name "$name" LIMITS "$@"; code=$?;'
    ' "$program" inspect --format "harness-oom {{.State.OOMKilled}}" "$name" >&2;'
    ' "$program" rm --force --volumes "$name" >/dev/null 2>&1; exit $code'
)
"""Not `run --rm`: whether the kernel killed it for lack of memory is known only as long as the container is there."""
NODE_LIMITS = f'--ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)" --ulimit nproc={PIDS_LIMIT}:{PIDS_LIMIT}'
"""Podman raises these two by itself, and starts no container at all on a node that does not allow it."""
OOM_TOLD = "harness-oom true"


@dataclass(frozen=True, kw_only=True)
class Start:
    """A container to start. `gpus`: UUIDs, or `all` alone. `ulimits`: those that the node can set."""

    name: str
    image: str
    text: str
    scenario: Scenario
    gpus: tuple[str, ...] = ()
    keep_entrypoint: bool = True
    ulimits: tuple[tuple[str, int, int], ...] = ()
    memory_bytes: int | None = None


def docker(start: Start) -> list[str]:
    """Return the command of `docker run`."""
    gpus = "all" if start.gpus == ("all",) else f'"device={",".join(start.gpus)}"'
    given = ["--gpus", gpus] if start.gpus else ["--env", "NVIDIA_VISIBLE_DEVICES=void"]
    return _run("docker", start, given)


def podman(start: Start) -> list[str]:
    """Return the command of `podman run`, which knows GPUs by CDI alone."""
    given = [word for gpu in start.gpus for word in ("--device", f"nvidia.com/gpu={gpu}")]
    return _run("podman", start, given, limits=NODE_LIMITS)


def _run(program: str, start: Start, gpus: Sequence[str], *, limits: str = "") -> list[str]:
    memory = start.scenario.memory_bytes or start.memory_bytes
    capped = [] if memory is None else ["--memory", str(memory), "--memory-swap", str(memory)]
    entrypoint = [] if start.keep_entrypoint else ["--entrypoint", "sh"]
    return [
        "sh", "-c", KEPT_RUN.replace("LIMITS", limits), "sh", program, start.name,
        "--interactive", "--init", "--log-driver", "none", "--network", "bridge" if start.scenario.network else "none",
        "--cap-drop", "ALL", *(f"--cap-add={name}" for name in start.scenario.cap_add),
        "--security-opt", "no-new-privileges", "--pids-limit", str(PIDS_LIMIT),
        "--shm-size", str(start.scenario.shm_bytes), *capped,
        *(f"--ulimit={name}={soft}:{hard}" for name, soft, hard in start.ulimits), *gpus, *entrypoint, start.image,
        *(["sh"] if start.keep_entrypoint else []), "-c", INSIDE, start.text,
    ]  # fmt: skip


COMMANDS: Mapping[str, Callable[[Start], list[str]]] = {"docker": docker, "podman": podman}
