"""Servers on loopback, for tests and doubles."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import NameOID


class QuietHandler(BaseHTTPRequestHandler):
    def say(self, status: int, body: bytes, kind: str = "application/json") -> None:
        """Send a whole answer."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """Yield the address of a server while it runs."""
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def self_signed(key: CertificateIssuerPrivateKeyTypes, of: str, *extensions: x509.ExtensionType) -> x509.Certificate:
    """Return a certificate of this key and name that is valid for a day; `extensions`: the critical one last."""
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, of)]), datetime.now(timezone.utc)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())  # type: ignore[arg-type]
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    for extension in extensions:
        made = made.add_extension(extension, critical=extension is extensions[-1])
    return made.sign(key, hashes.SHA256())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
