"""A server on loopback whose answers, good or bad, a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from harness.registry.authorization import Access
from harness.registry.bounded_http import Exchange
from harness.registry.registry_client import Registry


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """`raw`: sent instead of everything else."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: Iterator[bytes] | None = None


def told(content: object, *, status: int = 200, kind: str = "application/json") -> Reply:
    """Return a reply of JSON, or of bytes as they are."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Reply(status=status, headers={"Content-Type": kind}, body=body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[Request] = []
        self.answer: Callable[[Request], Reply] = lambda request: Reply(status=404)
        self.host = f"127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """A client that gave up is part of these tests."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise the body waits 40 ms for the client's acknowledgement of the headers

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.raw_requestline[:1].isalpha():
            self.close_connection = True  # the beginning of a TLS handshake, or the end
            return
        if self.parse_request():
            self.reply()

    def reply(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(method=self.command, path=self.path, headers=dict(self.headers), body=body)
        self.server.asked.append(request)
        reply = self.server.answer(request)
        if reply.raw is not None:
            for part in reply.raw:
                self.wfile.write(part)
            self.close_connection = True
            return
        self.send_response_only(reply.status)  # with no headers but those of the reply
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in reply.headers:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


def started(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def answering(answer: Callable[[Request], Reply]) -> Iterator[str]:
    """Run a server that answers like this, and yield its address."""
    server = Server()
    server.answer = answer
    with contextmanager(started)(server):
        yield server.host


@contextmanager
def answering_paths(known: Mapping[str, Reply], other: Reply) -> Iterator[str]:
    """Run a server that answers paths with these ends, and everything else by `other`; yield its address."""

    def answer(request: Request) -> Reply:
        return next((reply for end, reply in known.items() if request.path.endswith(end)), other)

    with answering(answer) as address:
        yield address


@dataclass(kw_only=True)
class World:
    """A registry client whose pauses are counted instead of made.

    Its timeouts allow for a busy machine, on which a second attempt would otherwise be counted.
    """

    home: Path
    pauses: list[float] = field(default_factory=list)
    limits: dict[str, Any] = field(default_factory=lambda: {"socket_s": 30.0, "answer_s": 60.0, "attempts": 3})
    environ: dict[str, str] = field(default_factory=dict)

    def registry(self) -> Registry:
        exchange = Exchange(pause=self.pause, **self.limits, now_s=lambda: 1_000_000_000.0)
        environ = {"HOME": str(self.home), **self.environ}
        access = Access(exchange=exchange, environ=environ, certificates=self.home / "certs.d")
        return Registry(exchange=exchange, access=access)

    def pause(self, seconds: float) -> None:
        if seconds:
            self.pauses.append(seconds)

    def docker_config(self, text: str) -> None:
        (self.home / ".docker").mkdir(exist_ok=True)
        (self.home / ".docker" / "config.json").write_text(text)
