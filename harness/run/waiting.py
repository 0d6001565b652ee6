"""Provides waits that can be interrupted: while nothing happens, `beat` is called every 0.2 s and may raise.

A thread that waits in a call to the engine cannot abandon the call. A long call therefore runs in a separate thread,
and its connection is shut down from outside; the engine then abandons the operation.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

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


def waited(api: APIClient, call: Callable[[], T], *, beat: Beat) -> T:
    """Return the result of a call of `api`, or raise its error. An early stop closes the connection."""
    (answer,) = streamed(api, lambda: [call()], beat=beat)
    return answer


def streamed(api: APIClient, call: Callable[[], Iterable[T]], *, beat: Beat) -> Iterator[T]:
    """Yield the items of a streaming call of `api`, or raise its error. An early stop closes the connection."""
    arrived: SimpleQueue[list[T] | BaseException] = SimpleQueue()

    def read() -> None:
        try:
            for item in call():
                arrived.put([item])
            arrived.put([])
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            arrived.put(error)

    with _responses(api) as responses:
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            yield from _taken(arrived, beat=beat)
        finally:
            _end(thread, responses)


def _taken(arrived: SimpleQueue[list[T] | BaseException], *, beat: Beat) -> Iterator[T]:
    """Yield the items that arrive, each in a list, until an empty list arrives."""
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


@contextlib.contextmanager
def _responses(api: APIClient) -> Iterator[list[Any]]:
    """Yield a list that collects the client's HTTP responses during the block, because the SDK does not expose
    them."""
    responses: list[Any] = []

    def keep(response: Any, *_: Any, **__: Any) -> None:
        responses.append(response)

    api.hooks["response"].append(keep)
    try:
        yield responses
    finally:
        api.hooks["response"].remove(keep)


def _end(thread: threading.Thread, responses: list[Any]) -> None:
    """End a call that still waits. A call that has no response yet cannot be ended; its thread ends with this
    process."""
    for response in responses if thread.is_alive() else ():
        with contextlib.suppress(ValueError, RuntimeError, OSError):  # it has just ended by itself
            response.raw.shutdown()
    thread.join(GIVE_UP_S)


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
    try:
        stdout, stderr = _output(process, beat=beat, until_s=time.monotonic() + limit_s)
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
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _output(process: subprocess.Popen[str], *, beat: Beat, until_s: float) -> tuple[str, str]:
    while True:
        try:
            return process.communicate(timeout=BEAT_S)
        except subprocess.TimeoutExpired:
            beat()
            if time.monotonic() > until_s:
                raise TimeoutError from None
