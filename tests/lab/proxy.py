"""A proxy to a real registry that is slow or has faults, as a pull may meet them."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Literal

import requests

from tests.serving import QuietHandler, serving

Fault = Literal["denied", "busy", "broken"]
"""`denied`: 401 to everything; `busy`: 429 to manifests; `broken`: half a layer, then the connection is closed."""
PIECE_BYTES = 16 << 10
ERRORS = {
    401: {"code": "UNAUTHORIZED", "message": "authentication required"},
    429: {"code": "TOOMANYREQUESTS", "message": "you have reached your pull rate limit"},
}


@dataclass(kw_only=True)
class Way:
    """A connection to the registry at `behind`. `faults`: repository -> the fault, and how many times it happens.

    `bytes_per_s`: bandwidth that all connections share; None: no limit.
    """

    behind: str
    faults: Mapping[str, tuple[Fault, int]] = field(default_factory=dict)
    bytes_per_s: float | None = None
    struck: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _free_s: float = 0.0

    def strikes(self, fault: Fault, path: str) -> bool:
        """Return whether the fault happens at this request, and count it."""
        repository = path.removeprefix("/v2/").split("/manifests/")[0].split("/blobs/")[0]
        kind, times = self.faults.get(repository, (None, 0))
        if kind != fault or self.struck[repository] >= times:
            return False
        self.struck[repository] += 1
        return True

    def wait_for_room(self, count: int) -> None:
        """Wait until this many bytes may pass."""
        if self.bytes_per_s is None:
            return
        with self._lock:
            self._free_s = max(self._free_s, time.monotonic()) + count / self.bytes_per_s
            until_s = self._free_s
        time.sleep(max(0.0, until_s - time.monotonic()))


@contextmanager
def way_to(way: Way) -> Iterator[str]:
    """Yield the address of a server that forwards as `way` says."""
    handler = type("Handler", (_Handler,), {"way": way})
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as address:
        yield address


class _Handler(QuietHandler):
    way: Way

    def do_GET(self) -> None:  # noqa: N802
        if self.way.strikes("denied", self.path):
            return self._refuse(401)
        if "/manifests/" in self.path and self.way.strikes("busy", self.path):
            return self._refuse(429)
        return self._pass_on()

    def do_HEAD(self) -> None:  # noqa: N802
        self.do_GET()

    def _refuse(self, status: int) -> None:
        self.say(status, json.dumps({"errors": [ERRORS[status]]}).encode())

    def _pass_on(self) -> None:
        kept = {name: self.headers[name] for name in ("Accept", "Range", "Authorization") if name in self.headers}
        url = f"http://{self.way.behind}{self.path}"
        with requests.request(self.command, url, headers=kept, stream=True, timeout=30) as answer:
            self.send_response(answer.status_code)
            for name in ("Content-Type", "Content-Length", "Content-Range", "Docker-Content-Digest"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            if self.command == "GET":
                self._send(answer)

    def _send(self, answer: requests.Response) -> None:
        length = int(answer.headers.get("Content-Length", 0))
        is_layer = "/blobs/" in self.path and length > 2 * PIECE_BYTES
        limit = length // 2 if is_layer and self.way.strikes("broken", self.path) else length
        sent = 0
        for piece in answer.iter_content(PIECE_BYTES):
            if sent + len(piece) > limit:
                self.wfile.write(piece[: limit - sent])
                return
            self.way.wait_for_room(len(piece))
            self.wfile.write(piece)
            sent += len(piece)
