"""Runs helper containers, which run no trial: they look at an engine from inside (its room, its GPUs, the Python of an
image), or install packages.

They run an image's own Python, which is not trusted. All are made here, confined as trials are, and their output is
read up to a limit and a deadline.
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
    """A helper took too long or printed too much. The text says which."""


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
    """Create a container that is removed after the block, and yield its id. Its stdin is open as long as this process
    lives.
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
