"""Creates all containers of the harness with their restrictions and limits, starts them and removes them: those of
trials, helpers, and those that dead runs left.

Helpers run no trial: they inspect an engine's host from inside (free disk space, GPUs, CPU) or install packages. They
run the Python of an image, which is not trusted, so they have the restrictions of trials, and their output is read up
to a limit of size and time.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import docker
import requests
from docker.errors import APIError, NotFound
from docker.types import DeviceRequest, LogConfig, Ulimit
from docker.types import Mount as Bind

from harness.agent import mounted as mounted_data
from harness.errors import InfrastructureError
from harness.model import Cache, Mount, Scenario
from harness.run import owners
from harness.run.docker.attach import AttachedSession, close_stream, open_stream, read_stream
from harness.run.docker.docker_client import (
    UNKNOWN_CDI_DEVICE,
    engine_errors,
    engine_time_s,
    explanation,
    is_podman,
    moment,
)
from harness.run.docker.tar_streams import archive, for_any_user
from harness.run.engine import LaunchRequest
from harness.run.interruptible import Beat, waited

ROOT = "/.harness"
PIDS_LIMIT = 4096
"""Most processes of a trial."""
MEMORY_BYTES = 1 << 30
PIDS = 256
PRINTED_BYTES = 256 << 10
"""Limits of a helper."""
ABANDONED: set[str] = set()
"""Ids or names of containers, including leases, that this process could not remove because it lost the engine."""
OWNER_LABEL = "harness.owner"
NAME_LABEL = "harness.container"
NOT_FOUND, CONFLICT = 404, 409
RLIMITS = (
    "cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as", "locks", "sigpending",
    "msgqueue", "nice", "rtprio", "rttime",
)  # fmt: skip
"""The resources of setrlimit(2) in the order of their numbers on Linux, which every engine runs on."""


class Ulimits:
    """The ulimits of trials on an engine. Later trials, on any connection to it, omit the defaults that it refused."""

    REFUSED: ClassVar[dict[str, set[str]]] = {}

    def __init__(self, engine_id: str | None = None) -> None:
        self._refused = self.REFUSED.setdefault(engine_id, set()) if engine_id else set()
        self._asked: dict[str, tuple[str, int, int]] = {}

    def of(self, scenario: Scenario) -> tuple[tuple[str, int, int], ...]:
        self._asked = {ulimit[0]: ulimit for ulimit in scenario.ulimits if ulimit[0] not in self._refused}
        return tuple(self._asked.values())

    def learn(self, message: str, scenario: Scenario) -> bool:
        """Return whether to try again after the engine refused to start a container with `message`: true if it refused
        a default ulimit, which later trials then omit.

        Rootless engines and those in small virtual machines may not raise their own limits. runc then reports "error
        setting rlimit type 8: operation not permitted", with the number of setrlimit(2), and crun (Podman) "setrlimit
        `RLIMIT_MEMLOCK`: Operation not permitted".
        """
        refusal = re.search(r"setting rlimit type (\d+)|setrlimit [`'\"]?RLIMIT_(\w+)", message)
        if refusal is None:
            return False
        name = refusal[2].lower() if refusal[2] else dict(enumerate(RLIMITS)).get(int(refusal[1]))
        defaults = {default[0] for default in Scenario.ulimits if default in scenario.ulimits}
        refused = defaults & self._asked.keys() & {name}
        self._refused.update(refused)
        return bool(refused)


LACKS_INIT = re.compile(r"docker-init|container-init|catatonit")
"""The program that an engine starts as the first process of a container, in what engines say that lack it. Without it,
the agent is the first process."""
ALL = "all"
CDI_KIND = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
VOID = "void"
ABSENT = re.compile(rf"could not select device driver|unknown runtime|{UNKNOWN_CDI_DEVICE}", re.IGNORECASE)

Way = Literal["request", "runtime", "cdi"]

WORDS: Mapping[Way, str] = {"request": "--gpus", "runtime": "--runtime nvidia", "cdi": "CDI"}


class GpuAccess:
    """Finds out how an engine with this `info` gives GPUs to containers: tries each way in turn, and keeps the first
    that works. The argument `gpus` of the methods is a list of UUIDs or [ALL].

    `request` is what `docker run --gpus` does. Engines without that driver may have the runtime `nvidia`, or support
    CDI. The engine's info does not show which way works: it lists runtimes and CDI folders, not the driver of `--gpus`.
    Podman supports only CDI: it ignores other requests and starts the container without a GPU.
    """

    def __init__(self, info: Mapping[str, Any]) -> None:
        ways: dict[Way, bool] = {
            "request": True,
            "runtime": "nvidia" in (info.get("Runtimes") or {}),
            "cdi": bool(info.get("CDISpecDirs")),
        }
        self._ways: list[Way] = ["cdi"] if is_podman(info) else [way for way, there in ways.items() if there]
        self._always_asked = info.get("DefaultRuntime") == "nvidia"

    @property
    def way(self) -> Way:
        return self._ways[0]

    @property
    def in_words(self) -> str:
        """Return the present way as users know it: `--gpus`, `--runtime nvidia` or CDI."""
        return WORDS[self.way]

    def refused(self, message: str) -> bool:
        """Return whether `message` shows that the engine lacks the present way; if another is left, take that."""
        lacking = ABSENT.search(message) is not None and len(self._ways) > 1
        if lacking:
            del self._ways[0]
        return lacking

    def host_config(self, gpus: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of `create_host_config` that request `gpus`; {} for none."""
        if not gpus:
            return {}
        if self.way == "runtime":
            return {"runtime": "nvidia"}
        if self.way == "cdi":
            request = DeviceRequest(driver="cdi", device_ids=[f"{CDI_KIND}={gpu}" for gpu in gpus])
        elif list(gpus) == [ALL]:
            request = DeviceRequest(count=-1, capabilities=[["gpu"]])
        else:
            request = DeviceRequest(device_ids=list(gpus), capabilities=[["gpu"]])
        return {"device_requests": [request]}

    def environment(self, gpus: Sequence[str]) -> dict[str, str]:
        """Return the environment variables that the container needs in addition.

        The runtime `nvidia` reads only the environment. If it is the default runtime, trials without GPUs must switch
        it off, because NVIDIA's images request all GPUs in their own environment.
        """
        if gpus and self.way == "runtime":
            return {VISIBLE: ",".join(gpus)}
        return {VISIBLE: VOID} if self._always_asked and not gpus else {}


@dataclass
class Ways:
    """The options of containers that an engine allows. An option that the engine refuses once is not used again.

    `memory_bytes`: the memory limit of a container unless the matrix file gives one; None if the engine does not report
    its memory. `labels_files`: SELinux keeps containers from files without their label.
    """

    gpus: GpuAccess
    memory_bytes: int | None = None
    labels_files: bool = False
    ulimits: Ulimits = field(default_factory=Ulimits)
    init: bool = True

    def refused(self, message: str, scenario: Scenario) -> bool:
        """Return whether to try again after the engine refused to start a container with `message`: true if it lacks
        one of the options, which is not used again."""
        if self.init and LACKS_INIT.search(message):
            self.init = False
            return True
        return self.ulimits.learn(message, scenario) or self.gpus.refused(message)


def marked(purpose: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the name and labels that mark a container as the harness's, as arguments of `create_container`.

    If a user commits such a container to an image, all containers from that image inherit its labels. A container
    therefore is the harness's only if its label NAME_LABEL equals its name.
    """
    name = f"harness-{re.sub(r'[^a-zA-Z0-9_.-]', '_', purpose)}-{secrets.token_hex(4)}"
    return {"name": name, "labels": {**(labels or {}), OWNER_LABEL: owners.this_process(), NAME_LABEL: name}}


HOSTNAME = "localhost"
"""The host name of a container without a network: torchrun would look up any other one again and again."""


def confined(*, memory_bytes: int | None, pids: int = PIDS_LIMIT, network: bool = False) -> dict[str, Any]:
    """Return the restrictions on every container of the harness, as arguments of `create_host_config`.

    The engine keeps no log, because it would grow without limit; the harness reads the output itself. An engine without
    memory cgroups ignores the memory limit.
    """
    return {
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "network_mode": "bridge" if network else "none",
        "mem_limit": memory_bytes,
        "memswap_limit": memory_bytes,  # equal to mem_limit: no swap
        "pids_limit": pids,
        "log_config": LogConfig(type="none"),
    }


@contextlib.contextmanager
def running(
    client: docker.DockerClient, launch: LaunchRequest, *, python: Sequence[str], ways: Ways
) -> Iterator[AttachedSession]:
    """Start a container with the agent in it, and yield its session; remove the container after the block. If the
    engine refuses an option that it may lack, try again without it."""
    place, stack = launch.prepared.image.where, contextlib.ExitStack()
    try:
        with engine_errors(place):
            while True:
                try:
                    session = stack.enter_context(_started(client, launch, python=python, ways=ways))
                    break
                except APIError as error:
                    why = explanation(error)
                    if other := _of_other_kind(launch.scenario.data, why):
                        text = f"{other.source} is a file, but the image has a folder at {other.at}, or the reverse"
                        raise InfrastructureError(f"{text}; choose another `at`") from error
                    if not ways.refused(why, launch.scenario):
                        raise
        yield session
    finally:
        with engine_errors(place):
            stack.close()


@contextlib.contextmanager
def _started(
    client: docker.DockerClient, launch: LaunchRequest, *, python: Sequence[str], ways: Ways
) -> Iterator[AttachedSession]:
    launch = launch.with_caches(own="/", path=place_of, filled=filled_at)
    scenario, payload, gpus = launch.scenario, launch.payload, [gpu.uuid for gpu in launch.gpus]
    with created(
        client,
        launch.prepared.reference,
        [*python, "-B", f"{ROOT}/start.py"],
        purpose=f"{launch.run[:20]}-{launch.number}",
        labels=launch.labels,
        keep_entrypoint=launch.prepared.image.keep_entrypoint,
        environment={**launch.environment, **ways.gpus.environment(gpus)},
        memory_bytes=scenario.memory_bytes or ways.memory_bytes,
        pids=PIDS_LIMIT,
        network=scenario.network,
        host_config={
            "init": ways.init,
            "cap_add": list(scenario.cap_add),
            "shm_size": scenario.shm_bytes,
            "ulimits": [Ulimit(name=name, soft=soft, hard=hard) for name, soft, hard in ways.ulimits.of(scenario)],
            **ways.gpus.host_config(gpus),
            **mounted(scenario.data, caches_of(launch), labels_files=ways.labels_files),
        },
    ) as container_id:
        under = ROOT[1:]
        packed = archive(
            {f"{under}/{name}": data for name, data in payload.contents.items()},
            executable=frozenset(f"{under}/{name}" for name in payload.executable),
            writable=f"{under}/scenario",
        )
        client.api.put_archive(container_id, "/", packed)
        for cache in scenario.caches:  # the engine makes them for root alone
            folder, name = posixpath.split(place_of(cache))
            client.api.put_archive(container_id, folder, for_any_user(name))
        with contextlib.closing(AttachedSession(client, container_id)) as session:
            client.api.start(container_id)
            yield session


def mounted(mounts: Sequence[Mount], caches: Sequence[Bind] = (), *, labels_files: bool = False) -> dict[str, Any]:
    """Return the arguments of `create_host_config` that mount data and caches; {} for none.

    An engine refuses such a mount if its source does not exist, and makes no folder. With SELinux, the container runs
    without its label: `:z` would change the labels of all the user's files.
    """
    if not mounts:
        return {"mounts": list(caches)} if caches else {}
    binds = [Bind(place_of(mount), str(mount.source), type="bind", read_only=True) for mount in mounts]
    unlabelled = [*confined(memory_bytes=None)["security_opt"], "label=disable"]
    return {"mounts": [*binds, *caches], **({"security_opt": unlabelled} if labels_files else {})}


def caches_of(launch: LaunchRequest) -> list[Bind]:
    """Return the volumes of a launch's caches. Those without a name are removed with the container. A volume does not
    begin with what the image has at its place."""
    volumes = []
    for cache in launch.scenario.caches:
        kept = launch.caches.get(cache.name)
        own = kept if launch.fills else None
        volumes.append(Bind(place_of(cache), own, type="volume", no_copy=True))
        if launch.copies(cache):
            volumes.append(Bind(filled_at(cache), kept, type="volume", no_copy=True, read_only=True))
    return volumes


def place_of(mount: Mount | Cache) -> str:
    """Return the absolute path at which a container has a mount. The agent makes the link of any other place."""
    at = mount.at.rstrip("/")
    if mount.is_absolute:
        return at
    return f"{CACHES}/{mount.name}" if isinstance(mount, Cache) else f"{mounted_data.IN_CONTAINERS}/{at}"


def filled_at(cache: Cache) -> str:
    return f"{FILLED}/{cache.name}"


CACHES, FILLED = "/.harness-caches", "/.harness-filled"


def _of_other_kind(mounts: Sequence[Mount], why: str) -> Mount | None:
    """Return the mount that an engine refuses because it is a file over a folder, or the reverse."""
    return next((each for each in mounts if OTHER_KIND.search(why) and str(each.source) in why), None)


OTHER_KIND = re.compile(r"not a directory", re.IGNORECASE)
ABSENT_SOURCE = re.compile(r"does not exist", re.IGNORECASE)


def exists(client: docker.DockerClient, image_id: str, path: Path, *, from_root: bool) -> bool:
    """Return whether the engine's host has a path, by a container that never starts. Docker refuses to create it if the
    path is missing. Podman makes the path, so it is asked for the header of the file, `from_root`: below the mounted
    root of its host. Raises any error of the SDK."""
    probe, api = mounted([Mount(source=Path("/") if from_root else path, at="/data")]), client.api
    try:
        with created(client, image_id, ["never"], purpose="mounts", host_config=probe) as container_id:
            url = f"{api.base_url}/v{api.api_version}/containers/{container_id}/archive"
            return not from_root or is_there(api.head(url, params={"path": f"/data{path}"}, timeout=api.timeout))
    except APIError as error:
        if ABSENT_SOURCE.search(explanation(error)):
            return False
        raise


def is_there(answer: requests.Response) -> bool:
    """Return whether the engine found a path. Raises APIError for an answer that does not tell."""
    if not answer.ok and answer.status_code != NOT_FOUND:
        raise APIError(answer.reason, response=answer)
    return answer.ok


def remove(client: docker.DockerClient, container_id: str) -> None:
    """Remove a container and its volumes, if it is there. Raises any error of the SDK, after noting it in ABANDONED."""
    try:
        client.api.remove_container(container_id, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != CONFLICT:  # "removal is already in progress"
            ABANDONED.add(container_id)
            raise
    except BaseException:
        ABANDONED.add(container_id)
        raise


# ---------------------------------------------------------------- helpers


class Unfinished(Exception):
    """A helper took too long or printed too much; the message says which."""


class TooLate(Unfinished):
    """A helper took too long."""


@contextlib.contextmanager
def created(
    client: docker.DockerClient,
    image_id: str,
    command: Sequence[str],
    *,
    purpose: str,
    labels: Mapping[str, str] | None = None,
    keep_entrypoint: bool = False,
    environment: Mapping[str, str] | None = None,
    memory_bytes: int | None = MEMORY_BYTES,
    pids: int = PIDS,
    network: bool = False,
    host_config: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Create a container, yield its id, and remove it after the block. Its stdin can be opened, and closes when this
    process ends. If the call fails, the engine may still have created it: its name is then added to ABANDONED.
    """
    marks = marked(purpose, labels)
    try:
        container_id = str(
            client.api.create_container(
                image_id,
                entrypoint=None if keep_entrypoint else list(command[:1]),
                command=list(command if keep_entrypoint else command[1:]),
                environment=dict(environment or {}),
                hostname=None if network else HOSTNAME,
                healthcheck={"test": ["NONE"]},  # the image's own would take time, and leave files, in each trial
                stdin_open=True,
                detach=False,
                host_config=client.api.create_host_config(
                    **{**confined(memory_bytes=memory_bytes, pids=pids, network=network), **(host_config or {})}
                ),
                **marks,
            )["Id"]
        )
    except BaseException:
        ABANDONED.add(marks["name"])
        raise
    try:
        yield container_id
    finally:
        remove(client, container_id)


@contextlib.contextmanager
def started(client: docker.DockerClient, container_id: str, *, beat: Beat) -> Iterator[Any]:
    """Start a container, and yield the stream of its output; close its stdin after the block."""
    stream = open_stream(client, container_id)
    try:
        waited(client.api, lambda: client.api.start(container_id), beat=beat)  # a stuck driver delays it
        yield stream
    finally:
        close_stream(stream)


def printed(client: docker.DockerClient, container_id: str, *, limit_s: float, beat: Beat) -> str:
    """Start a container, and return all that it prints. Raises Unfinished, and any error of the SDK or `beat`."""
    until_s, output = time.monotonic() + limit_s, bytearray()

    def in_time() -> None:
        beat()
        if time.monotonic() > until_s:
            raise TooLate(f"did not end within {limit_s:.0f} s")

    with started(client, container_id, beat=in_time) as stream:
        for chunk in read_stream(stream):
            output += chunk
            in_time()
            if len(output) > PRINTED_BYTES:
                raise Unfinished(f"printed more than {PRINTED_BYTES >> 10} KiB")
    return output.decode(errors="replace")


# ---------------------------------------------------------------- leftovers of dead runs


UNCHECKED_AGE_S = 600
"""Seconds without running after which a container counts as dead if its owner cannot be checked."""
NEVER = 1
"""The year in which a container ended that never ran."""


def ours(client: docker.DockerClient, *, dead: bool, now_s: float | None = None) -> dict[str, str]:
    """Return the names of the harness's containers, by id: of those whose owner process is gone if `dead` is true, else
    of those whose owner process runs, or may run.

    If the owner cannot be checked (it ran on another machine, or before a reboot), a container counts as dead only if
    it has not run for ten minutes by the engine's own clock: a living harness removes its containers immediately.
    """
    labelled = client.api.containers(all=True, filters={"label": [OWNER_LABEL, NAME_LABEL]})
    return {
        each["Id"]: each["Labels"][NAME_LABEL]
        for each in labelled
        if f"/{each['Labels'][NAME_LABEL]}" in (each["Names"] or ()) and _is_dead(client, each, now_s=now_s) is dead
    }


def _is_dead(client: docker.DockerClient, container: Mapping[str, Any], *, now_s: float | None) -> bool:
    if ABANDONED & {container["Id"], container["Labels"][NAME_LABEL]}:
        return True
    if (lives := owners.is_alive(container["Labels"][OWNER_LABEL])) is not None:
        return not lives
    if container["State"] not in ("exited", "dead", "created"):
        return False
    try:
        ended = moment(client.api.inspect_container(container["Id"])["State"]["FinishedAt"])
    except NotFound:  # its owner has just removed it
        return True
    since_s: float = container["Created"] if ended.year == NEVER else max(container["Created"], ended.timestamp())
    return (engine_time_s(client) if now_s is None else now_s) - since_s > UNCHECKED_AGE_S
