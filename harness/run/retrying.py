"""Retries after network errors, which are temporary. A wrong name or a failed build is permanent and not retried."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from harness.errors import ImageUnavailable
from harness.model.watching import Say
from harness.run.waiting import BEAT_S

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

T = TypeVar("T")


class NetworkTrouble(ImageUnavailable):
    """An image is unavailable because of a network error: a retry may help."""


def unavailable(text: str, *, place: object, cause: str) -> ImageUnavailable:
    """Return the error for an image: NetworkTrouble if `cause`, a message of the engine, pip or uv, reports a network
    error, else ImageUnavailable."""
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
                self._wait(wait_s, say=say, why=str(error))
            else:
                self._left_s = self._waits_s
                return result

    def _wait(self, wait_s: float, *, say: Say, why: str) -> None:
        for beat in range(max(1, round(wait_s / BEAT_S))):
            say(f"the network failed; trying again in {wait_s - beat * BEAT_S:.0f} s: {why}")
            self._sleep(BEAT_S)
