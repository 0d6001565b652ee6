"""Communicates with a container over the socket of Docker's attach call."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import docker
from docker.errors import NotFound
from requests.exceptions import RequestException

from harness.errors import InfrastructureError
from harness.run.docker.docker_client import ENGINE_ERRORS, LOST_S
from harness.run.engine import Exit, Session
from harness.run.interruptible import BEAT_S, BoundedTail

HEADER_BYTES = 8
STDOUT = 1
READ_BYTES = 1 << 18
SEND_S = 10.0
"""Seconds that one write to the container may take."""
EXIT_S = 5
"""Seconds to wait for a container's exit status after its output has ended."""
SILENCE_S = 30.0
"""Seconds without output after which the engine is pinged. The agent normally writes at least once a second."""
PING_S = 10


class Demux:
    """Splits Docker's multiplexed stream into frames, each an 8-byte header (stream, 0, 0, 0, length) and content.

    A frame may arrive in several pieces. Content is passed on as it arrives, so that frames are never buffered.
    """

    def __init__(self, *, merge: bool = False) -> None:
        """Start without data. If `merge` is true, treat stderr as stdout."""
        self._merge = merge
        self._header = bytearray()
        self._left = 0
        self._stream = 0
        self.stderr = BoundedTail()

    def feed(self, data: bytes) -> bytes:
        """Return the stdout content in `data`; collect the rest in `stderr`."""
        stdout, view = bytearray(), memoryview(data)
        while view:
            if self._left == 0:
                missing = HEADER_BYTES - len(self._header)
                self._header += view[:missing]
                if len(self._header) == HEADER_BYTES:
                    if self._header[0] > 3 or any(self._header[1:4]):
                        raise InfrastructureError("the engine's attach stream was not understood")
                    self._stream, self._left = self._header[0], int.from_bytes(self._header[4:], "big")
                    self._header.clear()
                view = view[missing:]
                continue
            content, view = view[: self._left], view[self._left :]
            self._left -= len(content)
            if self._merge or self._stream == STDOUT:
                stdout += content
            else:
                self.stderr.add(bytes(content))
        return bytes(stdout)


class AttachedSession(Session):
    """A session over a container, attached before the container starts."""

    def __init__(self, client: docker.DockerClient, container_id: str) -> None:
        self._api, self._id = client.api, container_id
        self._stream = open_stream(client, container_id)
        # The SDK returns a file object around the socket (unix, tcp), or the socket or channel itself (TLS, ssh).
        self._socket: Any = getattr(self._stream, "_sock", self._stream)
        self._demux = Demux()
        self._error = ""
        self._is_silent = False
        self._heard_s = time.monotonic()

    def send(self, data: bytes) -> None:
        self._socket.settimeout(SEND_S)
        with contextlib.suppress(OSError):  # the container is gone: receive() will report it
            self._socket.sendall(data)

    def receive(self, timeout_s: float) -> bytes | None:
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            return b"" if self._engine_is_there() else None
        except OSError as error:
            self._error = f"the connection to the engine was lost: {error}"
            return None
        self._heard_s = time.monotonic()
        return self._demux.feed(data) if data else None

    def _engine_is_there(self) -> bool:
        """Return whether the engine answers, which is asked after a long silence: a connection may outlive it."""
        if time.monotonic() - self._heard_s < SILENCE_S:
            return True
        try:
            self._api.get(f"{self._api.base_url}/_ping", timeout=PING_S)
        except ENGINE_ERRORS as error:
            self._error = f"the engine does not answer: {error}"
            self._is_silent = True
            self._api.timeout = LOST_S
            return False
        self._heard_s = time.monotonic()
        return True

    def exit(self) -> Exit:
        stderr = self._demux.stderr.text()
        if self._is_silent:
            return Exit(error=self._error, stderr_tail=stderr)
        try:
            with contextlib.suppress(RequestException):  # not ended in time: inspect_container shows the state so far
                self._api.wait(self._id, timeout=EXIT_S)
            state = self._api.inspect_container(self._id)["State"]
        except NotFound:
            return Exit(error="the container was removed from outside", stderr_tail=stderr)
        except ENGINE_ERRORS as error:
            return Exit(error=self._error or f"the engine does not answer: {error}", stderr_tail=stderr)
        return Exit(
            exit_code=None if state["Running"] else state["ExitCode"],
            oom_killed=state["OOMKilled"],
            error=state["Error"] or self._error,
            stderr_tail=stderr,
        )

    def close(self) -> None:
        close_stream(self._stream)


def open_stream(client: docker.DockerClient, container_id: str) -> Any:
    """Return the SDK's stream for all standard streams of a container. Call it before the container starts."""
    wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
    return client.api.attach_socket(container_id, params=wanted)


def read_stream(stream: Any) -> Iterator[bytes]:
    """Yield stdout and stderr as one stream until its end, and b"" whenever nothing arrives for BEAT_S seconds.

    The stream is closed at the end, even if the caller stops early.
    """
    demux, inner = Demux(merge=True), getattr(stream, "_sock", stream)
    inner.settimeout(BEAT_S)
    try:
        while True:
            try:
                data = inner.recv(READ_BYTES)
            except TimeoutError:
                yield b""
                continue
            if not data:
                return
            yield demux.feed(data)
    finally:
        close_stream(stream)


def close_stream(stream: Any) -> None:
    """Close the stream, so that the container's stdin ends: both the response and the inner socket keep it open."""
    inner = getattr(stream, "_sock", stream)
    if inner is None:
        return  # closed already
    with contextlib.suppress(OSError, AttributeError):  # gone already, or without `shutdown`
        inner.shutdown(socket.SHUT_RDWR)
    if (response := getattr(stream, "_response", None)) is not None:
        response.close()
    stream.close()
    inner.close()
