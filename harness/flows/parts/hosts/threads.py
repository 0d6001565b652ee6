"""Runs tasks in threads side by side, one for each machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from harness.errors import Interrupted

REMOVAL_S = 30.0
"""Seconds that an interrupted run waits for its hosts to remove what they started."""


def in_threads(tasks: Sequence[Callable[[], None]], stopped: threading.Event | None = None) -> None:
    """Run the tasks in threads, each to its end even if others fail; raise the first error. A single task needs no
    thread, unless `stopped` is given.

    `stopped`: an error sets it, so that the other tasks end early; Interrupted, which it shows, is not raised. Once it
    is set, the tasks have REMOVAL_S to clean up.
    """
    if len(tasks) == 1 and stopped is None:
        return tasks[0]()
    failures: list[BaseException] = []

    def work(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - handed on: a thread must not lose it
            failures.append(error)
            if stopped is not None:
                stopped.set()

    threads = [threading.Thread(target=work, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    deadline = float("inf")
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        for thread in threads:
            thread.join(0.1)
        if stopped is not None and stopped.is_set():
            deadline = min(deadline, time.monotonic() + REMOVAL_S)
    for error in failures:
        if stopped is None or not isinstance(error, Interrupted):
            raise error
    return None
