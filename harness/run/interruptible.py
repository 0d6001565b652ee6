"""Calls engines and programs so that every wait can be interrupted: `beat` is called every 0.2 s and may raise.

A thread that waits in a call to the engine cannot abandon the call. A long call therefore runs in a separate thread,
and its connection is shut down from outside; the engine then abandons the operation. Calls that failed because of the
network are made again: such an error is temporary, while a wrong name or a failed build is permanent. Of a program's
output the end is kept.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import ImageUnavailable, Interrupted
from harness.model.watching import Say

if TYPE_CHECKING:
    from docker import APIClient


BEAT_S = 0.2
"""Seconds between two calls of `beat`."""
GIVE_UP_S = 2.0
"""Seconds to wait for the thread of an abandoned call to end."""
KILLED_S = 10.0
"""Seconds to wait for a killed program to end."""

Beat = Callable[[], object]
T = TypeVar("T")


def say_unless(stopped: Callable[[], bool], say: Say) -> Say:
    """Return a Say that raises Interrupted, instead of saying a line, once `stopped` returns True."""

    def said(text: str) -> None:
        if stopped():
            raise Interrupted("interrupted")
        say(text)

    return said


def waited(api: APIClient, call: Callable[[], T], *, beat: Beat) -> T:
    """Return the result of a call of `api`, or raise its error. An early stop closes the connection."""
    (answer,) = streamed(api, lambda: [call()], beat=beat)
    return answer


def streamed(api: APIClient, call: Callable[[], Iterable[T]], *, beat: Beat) -> Iterator[T]:
    """Yield the items of a streaming call of `api`, or raise its error. An early stop closes the connection.

    A call that has no response yet cannot be ended; its thread ends with this process.
    """
    arrived: SimpleQueue[list[T] | BaseException] = SimpleQueue()
    responses: list[Any] = []

    def keep(response: Any, *_: Any, **__: Any) -> None:  # the SDK does not expose them
        responses.append(response)

    def read() -> None:
        try:
            for item in call():
                arrived.put([item])
            arrived.put([])
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            arrived.put(error)

    thread = threading.Thread(target=read, daemon=True)
    api.hooks["response"].append(keep)
    try:
        thread.start()
        while True:
            try:
                item = arrived.get(timeout=BEAT_S)
            except Empty:
                beat()
                continue
            if isinstance(item, BaseException):
                raise item
            if not item:
                return
            yield from item
    finally:
        for response in responses if thread.is_alive() else ():
            with contextlib.suppress(ValueError, RuntimeError, OSError):  # it has just ended by itself
                response.raw.shutdown()
        thread.join(GIVE_UP_S)
        api.hooks["response"].remove(keep)


def piped(
    command: Sequence[str], *, environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in a new session, with a pipe for each of its standard streams."""
    return subprocess.Popen(
        list(command),
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def silent() -> None:
    """Do nothing: the `beat` of a short wait that is not reported."""


def run_command(
    command: list[str], *, environment: Mapping[str, str], beat: Beat = silent, limit_s: float = math.inf
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return its output. Raises TimeoutError after `limit_s` seconds, and any error of
    `beat`.

    Before it raises, it kills the program's process group. A program that does not end even then, because it waits for
    a file system that is gone, is abandoned.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    )
    until_s, output = time.monotonic() + limit_s, None
    try:
        while output is None:
            try:
                output = process.communicate(timeout=BEAT_S)
            except subprocess.TimeoutExpired:
                beat()
                if time.monotonic() > until_s:
                    raise TimeoutError from None
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_S)
        raise
    finally:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    return subprocess.CompletedProcess(command, process.returncode, *output)


# ---------------------------------------------------------------- retries after network errors


WAITS_S = (5.0, 20.0)
"""Waits before the retries, in seconds."""
BUSY = re.compile(
    r"too ?many ?requests|bad gateway|service unavailable|\b(status|error|code|http):? (code )?(429|50[0234])\b",
    re.IGNORECASE,
)
"""Messages of a server that is reachable but cannot answer at the moment."""
NETWORK = re.compile(
    r"time-?out|timed out|connection (refused|reset|aborted|broken)|no such host|name resolution|max retries exceeded"
    r"|network is unreachable|no route to host|tls handshake|incompleteread|unexpected eof|: eof\b|dns error"
    r"|connection closed before message|end of file before message|" + BUSY.pattern,
    re.IGNORECASE,
)


class NetworkTrouble(ImageUnavailable):
    """An image is unavailable because of a network error: a retry may help."""


def unavailable(text: str, *, place: object, cause: str) -> ImageUnavailable:
    """Return the error of an image: NetworkTrouble if a tool's `cause` is of the network, else ImageUnavailable."""
    return (NetworkTrouble if NETWORK.search(cause) else ImageUnavailable)(text, place=place)


class NetworkRetries:
    """Retries calls that failed because of the network, after waits that `say` may interrupt by raising.

    If the network is still down after the last wait, later calls are not retried until one has succeeded: for twenty
    versions from an unreachable registry, the waits would take ten minutes and change nothing.
    """

    def __init__(self, waits_s: tuple[float, ...] = WAITS_S, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._waits_s = self._left_s = waits_s
        self._sleep = sleep

    def through(self, attempt: Callable[[], T], *, say: Say) -> T:
        """Return the result of `attempt`; raise its error if it is permanent or no retry is left."""
        while True:
            try:
                result = attempt()
            except NetworkTrouble as error:
                if not self._left_s:
                    raise
                wait_s, *left_s = self._left_s
                self._left_s = tuple(left_s)
                for beat in range(max(1, round(wait_s / BEAT_S))):
                    say(f"the network failed; trying again in {wait_s - beat * BEAT_S:.0f} s: {error!s}")
                    self._sleep(BEAT_S)
            else:
                self._left_s = self._waits_s
                return result


# ---------------------------------------------------------------- the end of an output


class BoundedTail:
    """Keeps the last `limit_bytes` bytes of the data that is added."""

    def __init__(self, limit_bytes: int = 64 << 10) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self._kept += data
        # Cut only at twice the limit, so that many small additions cause no copying.
        if len(self._kept) > 2 * self._limit_bytes:
            del self._kept[: -self._limit_bytes]

    def text(self) -> str:
        """Return the kept bytes as text; control characters stay, invalid UTF-8 is replaced."""
        return bytes(self._kept[-self._limit_bytes :]).decode(errors="replace")
