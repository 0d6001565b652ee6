"""Runs tasks in threads side by side, one for each machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from harness.errors import Interrupted

REMOVAL_S = 30.0
"""Seconds that an interrupted run waits for its hosts to remove what they started."""


def side_by_side(tasks: Sequence[Callable[[], None]], stopped: threading.Event) -> None:
    """Run the tasks in threads to their end; once stopped, wait at most REMOVAL_S for them to clean up.

    Raises the first error of a task after stopping the others, except Interrupted, which `stopped` shows.
    """
    failures = _in_threads(tasks, failed=stopped.set, stopped=stopped)
    for error in failures:
        if not isinstance(error, Interrupted):
            raise error


def at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks in threads, each to its end even if others fail. Raises the error of the first task that failed."""
    for error in _in_threads(tasks):
        raise error


def _in_threads(
    tasks: Sequence[Callable[[], None]],
    *,
    failed: Callable[[], None] = lambda: None,
    stopped: threading.Event | None = None,
) -> list[BaseException]:
    """Run the tasks, and return their errors in the order in which they occurred. `failed` is called immediately for
    each. Wait for all tasks; once `stopped` is set, for at most REMOVAL_S.
    """
    failures: list[BaseException] = []

    def work(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - handed on: a thread must not lose it
            failures.append(error)
            failed()

    threads = [threading.Thread(target=work, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    deadline = float("inf")
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        for thread in threads:
            thread.join(0.1)
        if stopped is not None and stopped.is_set():
            deadline = min(deadline, time.monotonic() + REMOVAL_S)
    return failures
