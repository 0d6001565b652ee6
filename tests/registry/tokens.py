"""A token service for `docker-registry`: it signs what a client may do (Docker's token specification)."""

from __future__ import annotations

import base64
import json
import secrets
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.serving import QuietHandler, self_signed

SERVICE = "registry of the tests"
ISSUER = "token service of the tests"


class TokenService(ThreadingHTTPServer):
    """Anyone may pull; a client with the login may do everything. `asked`: the queries that arrived."""

    def __init__(self, *, user: str, password: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.login = f"{user}:{password}"
        self.asked: list[dict[str, list[str]]] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.certificate = self_signed(self._key, ISSUER, x509.BasicConstraints(ca=True, path_length=None))

    @property
    def realm(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"

    def write_certificate(self, path: Path) -> Path:
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def token(self, scopes: list[str], *, may_write: bool) -> str:
        now = int(time.time())
        header = {
            "typ": "JWT",
            "alg": "RS256",
            "x5c": [base64.b64encode(self.certificate.public_bytes(serialization.Encoding.DER)).decode()],
        }
        claims = {
            "iss": ISSUER, "aud": SERVICE, "sub": "", "jti": secrets.token_hex(8),
            "iat": now, "nbf": now - 10, "exp": now + 300,
            "access": [_access(scope, may_write=may_write) for scope in scopes],
        }  # fmt: skip
        signed = f"{_encoded(json.dumps(header).encode())}.{_encoded(json.dumps(claims).encode())}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}"


class _Handler(QuietHandler):
    server: TokenService

    def do_GET(self) -> None:  # noqa: N802
        query = parse_qs(urlsplit(self.path).query)
        self.server.asked.append(query)
        basic = self.headers.get("Authorization", "")
        known = basic == "Basic " + base64.b64encode(self.server.login.encode()).decode()
        if basic and not known:
            self.say(401, b'{"errors": []}')
        else:
            scopes = [scope for value in query.get("scope", ()) for scope in value.split(" ")]
            self.say(200, json.dumps({"token": self.server.token(scopes, may_write=known)}).encode())


def _access(scope: str, *, may_write: bool) -> dict[str, Any]:
    kind, name, actions = scope.split(":")
    allowed = [action for action in actions.split(",") if may_write or action == "pull"]
    return {"type": kind, "name": name, "actions": allowed}


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
