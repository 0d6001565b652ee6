"""Holds a container of an image while it is changed: runs commands in it, copies files in, and commits it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import docker

from harness.errors import ImageUnavailable
from harness.model import Image
from harness.model.watching import Say
from harness.run.docker import containers
from harness.run.docker.attach import read_stream
from harness.run.docker.containers import NAME_LABEL, PIDS_LIMIT, archive
from harness.run.hosts.holders import OWNER_LABEL
from harness.run.images import build_images
from harness.run.images.find_images import Found, find_python, inspect, local_image
from harness.run.images.our_images import IMAGE_LABEL
from harness.run.interruptible import BoundedTail

REPOSITORY = "harness/overlay"
DIGEST_LABEL = "harness.digest"
CONFIG_KEPT = ("Entrypoint", "Cmd", "WorkingDir", "User", "Env")
COMMAND_S = 4 * 3600.0
"""Time limit of one command in the container, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A running container. `python`: the name of its Python; `place`: the new image's place in the matrix file and its
    version, for messages."""

    client: docker.DockerClient
    container_id: str
    base_id: str
    python: str
    place: str
    say: Say

    def put(self, files: Mapping[str, bytes]) -> None:
        """Copy files, given by their absolute paths, into the container."""
        self.client.api.put_archive(self.container_id, "/", archive({path[1:]: data for path, data in files.items()}))

    def printed(self, *command: str) -> str:
        """Run a small command of the harness and return its output. Raises ImageUnavailable if it fails."""
        code, output = self.execute(command)
        if code != 0:
            why = why_failed(output).text
            raise ImageUnavailable(
                f"`{command[0]}` failed in the base image: {why}; use another base", place=self.place
            )
        return output

    def execute(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Run a command as root; return its exit code and the end of its output. Raises ImageUnavailable if it takes
        longer than COMMAND_S.
        """
        api, output, line = self.client.api, BoundedTail(), command[0]
        until_s = time.monotonic() + COMMAND_S
        variables = dict(environment or {})
        exec_id = api.exec_create(self.container_id, list(command), environment=variables, user="root")["Id"]
        for chunk in read_stream(api.exec_start(exec_id, socket=True)):
            output.add(chunk)
            lines = build_images.readable(chunk.decode(errors="replace")).strip().splitlines()
            line = lines[-1][:120] if lines else line
            self.say(line)
            if time.monotonic() > until_s:
                took = f"took more than {COMMAND_S / 3600:.0f} h"
                raise ImageUnavailable(f"`{command[0]}` {took}; use `build:`", place=self.place)
        return api.exec_inspect(exec_id)["ExitCode"], output.text()

    def commit(self, *, tag: str, digest: str, environment: Sequence[str] | None = None) -> Found:
        """Commit the container as an image that starts as its base does: with the same ENTRYPOINT, CMD, WORKDIR and
        USER, and with the same ENV unless `environment` is given.
        """
        base, name = inspect(self.client, self.base_id)["Config"], f"{REPOSITORY}:{tag}"
        conf = {field: base.get(field) for field in CONFIG_KEPT}
        conf["Env"] = conf["Env"] if environment is None else list(environment)
        conf["Entrypoint"] = conf["Entrypoint"] or []  # null would keep the container's entrypoint
        ours = {IMAGE_LABEL: name, DIGEST_LABEL: digest}
        # The engine adds the container's labels; empty values override them.
        conf["Labels"] = {**(base.get("Labels") or {}), OWNER_LABEL: "", NAME_LABEL: "", **ours}
        self.client.api.commit(self.container_id, repository=REPOSITORY, tag=tag, conf=conf)
        return Found(id=inspect(self.client, name)["Id"], digest=digest)


@contextlib.contextmanager
def hold_image(
    client: docker.DockerClient,
    image_id: str,
    *,
    image: Image,
    memory_bytes: int | None,
    say: Say,
    network: bool = True,
) -> Iterator[Holder]:
    """Yield a running container of `image_id`, in which `image` is made. Raises ImageUnavailable if it has no Python.

    The container waits for the end of its stdin, so that it does not outlive this process. It has the restrictions of a
    trial's container, but may have network access, and may replace files of any user.
    """
    place, python = image.place, find_python(client, image_id)
    if python is None:
        raise ImageUnavailable("the base image has no python3 or python on its PATH; use another base", place=place)
    with (
        containers.created(
            client,
            image_id,
            [python, "-c", "import sys; sys.stdin.read()"],
            purpose="install",
            memory_bytes=memory_bytes,
            pids=PIDS_LIMIT,
            network=network,
            host_config={"init": True, "cap_add": ["DAC_OVERRIDE"]},
        ) as container_id,
        containers.started(client, container_id, beat=lambda: say("starting the base image")),
    ):
        yield Holder(client=client, container_id=container_id, base_id=image_id, python=python, place=place, say=say)


def committed(client: docker.DockerClient, tag: str) -> Found | None:
    """Return the image that was committed under a tag; None if the engine does not have it."""
    record = local_image(client, f"{REPOSITORY}:{tag}")
    return None if record is None else Found(id=record["Id"], digest=record["Config"]["Labels"][DIGEST_LABEL])


def why_failed(output: str) -> build_images.Complaint:
    """Return the reason for the failure of a command from its output, in one line of at most 400 characters."""
    found = build_images.complaint(build_images.readable(output).splitlines())
    return found._replace(text=found.text[:400] or "pip failed without a message")
