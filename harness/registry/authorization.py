"""Determines the address of a registry and our authorization there. Both are looked up once and kept in memory."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from harness.registry.bounded_http import Exchange, Question, Response, host_of, may_lead
from harness.registry.challenge import Challenge, read_challenges
from harness.registry.credentials import Login, Logins
from harness.registry.documents import Token, is_json_object
from harness.registry.image_references import RegistryName
from harness.registry.registry_errors import RegistryDenied, RegistryTrouble

CERTIFICATES = Path("/etc/docker/certs.d")
HANDSHAKE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Server:
    """The address of the API. `verify`: accept trusted certificates (True), those of a CA file, or any (False)."""

    base: str
    verify: bool | str

    def url(self, path: str) -> str:
        return f"{self.base}/v2/{path}"


class Access:
    """Sends requests to registries with the authorization that each repository requires."""

    def __init__(self, *, exchange: Exchange, logins: Logins, certificates: Path = CERTIFICATES) -> None:
        self._exchange = exchange
        self._logins = logins
        self._certificates = certificates
        self._servers: dict[str, Server] = {}
        self._authorizations: dict[str, str] = {}

    def server(self, name: RegistryName) -> Server:
        """Return the server as Docker finds it: always with TLS, except that this machine's may use plain HTTP."""
        if name.host not in self._servers:
            scheme = "http" if name.is_loopback and not _speaks_tls(name.server) else "https"
            self._servers[name.host] = Server(base=f"{scheme}://{name.server}", verify=self._verify(name))
        return self._servers[name.host]

    def _verify(self, name: RegistryName) -> bool | str:
        authority = self._certificates / name.host / "ca.crt"
        if authority.is_file():
            return str(authority)
        return not name.is_loopback

    def ask(self, name: RegistryName, url: str, *, method: str = "GET", accept: str = "") -> Response:
        """Return the registry's answer after authorization, with any status. Raises RegistryDenied for 401 and 403."""
        answer = self._ask(name, url, method=method, accept=accept)
        if answer.status == 401:
            self._authorizations[str(name)] = self._authorize(name, answer)
            answer = self._ask(name, url, method=method, accept=accept)
        if answer.status in (401, 403):
            raise RegistryDenied(
                f"{name.host}: denies access to {name.repository} (HTTP {answer.status}); "
                f"check the name, or run `docker login {name.host}`"
            )
        return answer

    def _ask(self, name: RegistryName, url: str, *, method: str, accept: str) -> Response:
        question = Question(
            url=url,
            method=method,
            headers={"Accept": accept} if accept else {},
            authorization=self._authorizations.get(str(name)),
            verify=self.server(name).verify,
            is_whole=_is_whole,
        )
        return self._exchange.ask(question)

    def _authorize(self, name: RegistryName, answer: Response) -> str:
        """Return the `Authorization` header that a 401 answer asks for: with a token if the registry accepts one."""
        challenges = {
            challenge.scheme: challenge for challenge in read_challenges(answer.headers.get("WWW-Authenticate", ""))
        }
        login = self._logins.of(name.host)
        if "bearer" in challenges:
            return f"Bearer {self._token(challenges['bearer'], name, login)}"
        if "basic" in challenges and login and login.user:
            return login.basic
        raise RegistryDenied(f"{name.host}: requires a login for {name.repository}; run `docker login {name.host}`")

    def _token(self, challenge: Challenge, name: RegistryName, login: Login | None) -> str:
        if not may_lead(self.server(name).base, challenge.realm):
            raise RegistryTrouble(f"{name.host}: names no token service that is safe to ask; is it a registry?")
        url = challenge.token_url(name.repository)
        service = host_of(url)
        answer = self._exchange.ask(self._token_question(url, challenge, name, login))
        if answer.status in (400, 401, 403):
            problem = "rejects the login that Docker has" if login else "issues no token without a login"
            raise RegistryDenied(
                f"{service}: {problem} for {name} (HTTP {answer.status}); "
                f"check the name, or run `docker login {name.host}`"
            )
        try:
            said = Token.model_validate_json(answer.body)
        except ValidationError:
            said = Token()
        token = said.token or said.access_token
        if not token or answer.status != 200:
            raise RegistryTrouble(
                f"{service}: does not respond like a token service (HTTP {answer.status}); try again later"
            )
        return token

    def _token_question(self, url: str, challenge: Challenge, name: RegistryName, login: Login | None) -> Question:
        host = RegistryName(host=host_of(url), repository="")
        form = None
        if login and login.identity:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": login.identity,
                "client_id": "harness",
                "service": challenge.service,
                "scope": f"repository:{name.repository}:pull",
            }
        return Question(
            url=url,
            method="POST" if form else "GET",
            form=form,
            authorization=login.basic if login and not form else None,
            verify=self._verify(host),
            is_whole=_is_whole,
        )


def _is_whole(answer: Response) -> bool:
    """Return whether an answer is complete: JSON that cannot be parsed counts as cut off. Callers check other content
    types.
    """
    says_json = "json" in answer.headers.get("Content-Type", "")
    return not (says_json and answer.status == 200 and answer.body) or is_json_object(answer.body)


def _speaks_tls(server: str) -> bool:
    """Return whether a server on this machine starts a TLS handshake. False if it is down; the first request reports
    that.
    """
    parts = urlsplit(f"//{server}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's certificates: nothing is verified
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 443), timeout=HANDSHAKE_S) as connection,
            context.wrap_socket(connection, server_hostname=parts.hostname),
        ):
            return True
    except OSError:
        return False
