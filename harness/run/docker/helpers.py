"""Runs helper containers, which run no trial: they inspect an engine's host from inside (free disk space, GPUs, CPU) or
install packages.

They run the Python of an image, which is not trusted. All helper containers are created here, with the restrictions of
trials, and their output is read up to a limit of size and time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import docker

from harness.run.docker.attach import close_stream, open_stream, read_stream
from harness.run.docker.containers import confined, made, marked, removed
from harness.run.waiting import Beat, waited

MEMORY_BYTES = 1 << 30
PIDS = 256
PRINTED_BYTES = 256 << 10


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
    environment: Mapping[str, str] | None = None,
    memory_bytes: int | None = MEMORY_BYTES,
    pids: int = PIDS,
    network: bool = False,
    host_config: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Create a container, yield its id, and remove it after the block. Its stdin can be opened, and closes when this
    process ends.
    """
    confinement = confined(memory_bytes=memory_bytes, pids=pids, network=network)
    container_id = made(
        client,
        image_id,
        entrypoint=list(command[:1]),
        command=list(command[1:]),
        environment=dict(environment or {}),
        stdin_open=True,
        detach=False,
        host_config=client.api.create_host_config(**{**confinement, **(host_config or {})}),
        **marked(purpose),
    )
    with removed(client, container_id):
        yield container_id


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
    """Start a container, and return everything that it prints. Raises Unfinished, and any error of the SDK or
    `beat`."""
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
