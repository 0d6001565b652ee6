"""Makes the commands that start a trial's container on a node: one function for each container program.

The commands do not rely on the programs' defaults: the network is off unless the scenario requests it, of the node's
files only the scenario's mounts are there, read-only, and no capability is given. The container runs `inside.py`, which
reads the trial's files from its input.

`docker` manages its own images and containers on the node. The other programs start an image file inside the step: the
step limits the memory, and whatever a trial writes stays in memory and disappears when the trial ends.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.agent.mounted import IN_CONTAINERS
from harness.errors import InfrastructureError
from harness.model import Scenario, Where
from harness.run.docker.containers import HOSTNAME, PIDS_LIMIT, place_of

PYTHON = (
    'p=$(command -v python3 || command -v python) || { echo "no python3 or python in this image" >&2; exit 127; }; '
)
INSIDE = f'{PYTHON}exec "$p" -c "$0"'
KEPT_RUN = (
    'name=$1; shift; docker run --name "$name" "$@"; code=$?;'
    ' docker inspect --format "harness-oom {{.State.OOMKilled}}" "$name" >&2;'
    ' docker rm --force --volumes "$name" >/dev/null 2>&1; exit $code'
)
"""Runs a container without `--rm`, because the engine reports whether it ran out of memory only while it exists."""
OOM_TOLD = "harness-oom true"
NODE_FOLDER = "/tmp"
IN_FOLDER = (
    'folder=$1; shift; trap : TERM INT; mkdir -m 700 "$folder" || exit 1; printf \'exec "$@"\\n\' >"$folder/rc";'
    ' "$@"; code=$?; rm -rf "$folder"; exit $code'
)
"""Runs enroot with its own files in a folder that is removed afterwards; the folder's name marks it as the run's."""
ENROOT_PLACES = {"CONFIG": "config", "DATA": "data", "CACHE": "cache", "RUNTIME": "run"}
ENROOT_SETTINGS = {
    "MOUNT_HOME": "no", "REMAP_ROOT": "no", "RESTRICT_DEV": "yes", "LOGIN_SHELL": "no", "ROOTFS_WRITABLE": "yes",
}  # fmt: skip
"""Settings that override a cluster's enroot.conf. A login shell would read /etc/profile, which changes PATH."""
BARE = Scenario(name="", where=Where(file="", line=0, key=""), shm_bytes=64 << 20)
"""The scenario of containers that run no trial."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A container to start. `gpus`: UUIDs, or ("all",). `ulimits`: those that the node can set. `text`: the source of
    `inside.py`.

    `memory_bytes`: the limit if the scenario has none. `names_capabilities`: whether the image sets
    NVIDIA_DRIVER_CAPABILITIES, the parts of the driver that it uses. `unpacked`: the name of the container into which
    pyxis unpacked the image.
    """

    name: str
    image: str
    text: str
    scenario: Scenario
    gpus: tuple[str, ...] = ()
    keep_entrypoint: bool = True
    ulimits: tuple[tuple[str, int, int], ...] = ()
    memory_bytes: int | None = None
    names_capabilities: bool = True
    unpacked: str = "NAME"


def bind_options(start: Start) -> list[str]:
    """Return the options of docker and apptainer that mount data, as CSV: a path may have any character."""
    options = []
    for mount in start.scenario.data:
        value = io.StringIO()
        fields = ("type=bind", f"source={mount.source}", f"destination={place_of(mount)}", "ro")
        csv.writer(value, lineterminator="").writerow(fields)
        options += ["--mount", value.getvalue()]
    return options


def colon_words(start: Start, *, program: str, refused: str) -> list[str]:
    """Return `SOURCE:PLACE` of each mount, for enroot and pyxis. Raises InfrastructureError for a path with a character
    that matches `refused`: the program would mount another path."""
    for path in (path for mount in start.scenario.data for path in (str(mount.source), mount.at)):
        if found := re.search(refused, path):
            text = f"{path}: {program} cannot mount a path with {found[0]!r}"
            raise InfrastructureError(f"{text}; give it another name, or make a link to it")
    return [f"{mount.source}:{place_of(mount)}" for mount in start.scenario.data]


def docker(start: Start) -> list[str]:
    """Return the command of `docker run`."""
    gpus = "all" if start.gpus == ("all",) else f'"device={",".join(start.gpus)}"'
    given = ["--gpus", gpus] if start.gpus else ["--env", "NVIDIA_VISIBLE_DEVICES=void"]
    memory = start.scenario.memory_bytes or start.memory_bytes
    capped = [] if memory is None else ["--memory", str(memory), "--memory-swap", str(memory)]
    entrypoint = [] if start.keep_entrypoint else ["--entrypoint", "sh"]
    return [
        "sh", "-c", KEPT_RUN, "sh", start.name,
        "--interactive", "--init", "--no-healthcheck", "--log-driver", "none",
        *(("--network", "bridge") if start.scenario.network else ("--network", "none", "--hostname", HOSTNAME)),
        "--cap-drop", "ALL", *(f"--cap-add={name}" for name in start.scenario.cap_add),
        "--security-opt", "no-new-privileges", "--pids-limit", str(PIDS_LIMIT),
        "--shm-size", str(start.scenario.shm_bytes), *capped,
        *(f"--ulimit={name}={soft}:{hard}" for name, soft, hard in start.ulimits), *bind_options(start),
        *given, *entrypoint, start.image,
        *(["sh"] if start.keep_entrypoint else []), "-c", INSIDE, start.text,
    ]  # fmt: skip


def enroot(start: Start) -> list[str]:
    """Return the command of `enroot start`, which mounts the image file under a writable layer in memory."""
    folder = f"{NODE_FOLDER}/{start.name}"
    settings = {f"ENROOT_{name}_PATH": f"{folder}/{place}" for name, place in ENROOT_PLACES.items()}
    settings |= {f"ENROOT_{name}": value for name, value in ENROOT_SETTINGS.items()}
    alone = [] if start.scenario.network else ["unshare", "--user", "--map-current-user", "--net"]
    words = colon_words(start, program="enroot", refused=r"[:\\]|[^\S ]")
    mounts = [f"{word}:none:x-create=auto,rbind,ro".replace(" ", r"\040") for word in words]  # as in /etc/fstab
    gpus = ["--env", f"NVIDIA_VISIBLE_DEVICES={','.join(start.gpus) or 'void'}"]
    if start.gpus and not start.names_capabilities:  # else its hook uses `utility`, without CUDA
        gpus += ["--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    return [
        "sh", "-c", IN_FOLDER, "sh", folder, *alone, "env", *(f"{name}={value}" for name, value in settings.items()),
        "enroot", "start", "--rw", *gpus,
        *(word for mount in mounts for word in ("--mount", mount)),
        *([] if start.keep_entrypoint else ["--rc", f"{folder}/rc"]), start.image, "sh", "-c", INSIDE, start.text,
    ]  # fmt: skip


def apptainer(start: Start) -> list[str]:
    """Return the command of `apptainer run`, which starts the entrypoint, or of `apptainer exec`, which does not.

    Without `--no-eval`, the entrypoint's shell would evaluate the arguments again.
    """
    return [
        "apptainer", "run" if start.keep_entrypoint else "exec", "--containall", "--no-home", "--no-mount",
        "bind-paths", "--writable-tmpfs", "--cleanenv", "--no-eval", "--no-privs",
        *([] if start.scenario.network else ["--net", "--network", "none"]), *(["--nv"] if start.gpus else []),
        *bind_options(start), start.image, "sh", "-c", INSIDE, start.text,
    ]  # fmt: skip


def pyxis(start: Start) -> list[str]:
    """Return the options of srun that make pyxis start a container, followed by the command in it.

    The container was unpacked before, is read-only, and is started again for each trial. A trial writes to a file
    system in memory. Another one has the places of relative mounts, which would stay in the container for others.
    """
    words = colon_words(start, program="pyxis", refused=r'[:,"$`\\]|\s')  # a shell reads them, between double quotes
    mounts = ",".join(["tmpfs:/tmp", f"tmpfs:{IN_CONTAINERS}", *(f"{word}:ro" for word in words)])
    entrypoint = "--container-entrypoint" if start.keep_entrypoint else "--no-container-entrypoint"
    return [
        f"--container-image={start.image}", f"--container-name={start.unpacked}:no_exec", "--container-readonly",
        f"--container-mounts={mounts}", "--container-workdir=/tmp", "--no-container-mount-home",
        "--no-container-remap-root", entrypoint, f"--container-env={','.join(pyxis_variables(start))}",
        "sh", "-c", INSIDE, start.text,
    ]  # fmt: skip


def pyxis_variables(start: Start) -> dict[str, str]:
    """Return the variables of srun's environment from which enroot's hook reads the GPUs."""
    given = {"NVIDIA_VISIBLE_DEVICES": ",".join(start.gpus) or "void"}
    if start.gpus and not start.names_capabilities:
        given["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
    return given


COMMANDS: Mapping[str, Callable[[Start], list[str]]] = {
    "docker": docker, "enroot": enroot, "apptainer": apptainer, "pyxis": pyxis
}  # fmt: skip
WITH_FILES = ("enroot", "apptainer", "pyxis")
"""Programs whose images are files in a folder that this machine and the nodes share."""
VERSIONS = {"enroot": ("enroot", "version"), "apptainer": ("apptainer", "--version"), "pyxis": ("enroot", "version")}
"""Commands that print the version of a program, which is part of each trial's key."""
OUTSIDE = (
    r"(SLURM|SLURMD|SBATCH|SALLOC|SRUN|SPANK|PMI|PMIX|OMPI|PRTE|UCX|ENROOT|PYXIS)_.*|PMI\w*|TMPDIR|HOSTNAME|PWD|OLDPWD"
    r"|CUDA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|ZE_AFFINITY_MASK"
    r"|RANK|LOCAL_RANK|NODE_RANK|GROUP_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT"
)
"""Pattern of the variables that Slurm, pyxis and the hooks of enroot set. Variables of the last line would make a
framework wait for other processes of a job."""


def visible_gpus(container: str, gpus: Sequence[str]) -> dict[str, str]:
    """Return the variables that select a trial's GPUs, for a program that shows all of the node's; else {}."""
    if container != "apptainer" or not gpus:
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(gpus)}


def options_of(container: str) -> str:
    """Return a hash of the command that starts such containers, for each trial's key; "" for docker and none."""
    if container not in WITH_FILES:
        return ""
    command = COMMANDS[container](Start(name="NAME", image="IMAGE", text="", scenario=BARE))
    return hashlib.sha256("\0".join(command).encode()).hexdigest()[:12]
