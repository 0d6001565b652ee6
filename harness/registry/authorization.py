"""Determines the address of a registry and our authorization there. Both are looked up once and kept in memory.

The logins are those that `docker login` stored in Docker's own configuration, and no others. Secrets stay in memory:
helpers are called through a pipe, and no message or representation contains one.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pydantic import BaseModel, Field, ValidationError

from harness.registry.bounded_http import (
    Exchange,
    Question,
    RegistryDenied,
    RegistryTrouble,
    Response,
    host_of,
    may_lead,
)
from harness.registry.image_references import DOCKER_HUB, RegistryName

CERTIFICATES = Path("/etc/docker/certs.d")
HANDSHAKE_S = 5.0


class Token(BaseModel):
    """The answer of a token service, which has one of these fields or both."""

    token: Annotated[str, Field(pattern=r"^[\x21-\x7e]*$")] = ""
    access_token: Annotated[str, Field(pattern=r"^[\x21-\x7e]*$")] = ""


class Access:
    """Sends requests to registries with the authorization that each repository requires."""

    def __init__(self, *, exchange: Exchange, environ: Mapping[str, str], certificates: Path = CERTIFICATES) -> None:
        self._exchange = exchange
        self._environ = environ
        self._certificates = certificates
        self._bases: dict[str, str] = {}
        self._authorizations: dict[str, str] = {}

    def url(self, name: RegistryName, path: str) -> str:
        """Return an address of the API: with TLS, except that registries of this machine may use plain HTTP."""
        if name.host not in self._bases:
            scheme = "http" if name.is_loopback and not _speaks_tls(name.server) else "https"
            self._bases[name.host] = f"{scheme}://{name.server}"
        return f"{self._bases[name.host]}/v2/{name.repository}/{path}"

    def _verify(self, name: RegistryName) -> bool | str:
        """Return whether to accept trusted certificates (True), those of a CA file, or any (False), as Docker does."""
        authority = self._certificates / name.host / "ca.crt"
        return str(authority) if authority.is_file() else not name.is_loopback

    def ask(self, name: RegistryName, url: str, *, method: str = "GET", accept: str = "") -> Response:
        """Return the registry's answer after authorization, with any status. Raises RegistryDenied for 401 and 403."""
        question = Question(
            url=url,
            method=method,
            headers={"Accept": accept} if accept else {},
            authorization=self._authorizations.get(str(name)),
            verify=self._verify(name),
            whole_json=True,
        )
        answer = self._exchange.ask(question)
        if answer.status == 401:
            self._authorizations[str(name)] = self._authorize(name, url, answer)
            answer = self._exchange.ask(replace(question, authorization=self._authorizations[str(name)]))
        if answer.status in (401, 403):
            raise RegistryDenied(
                f"{name.host}: denies access to {name.repository} (HTTP {answer.status}); "
                f"check the name, or run `docker login {name.host}`"
            )
        return answer

    def _authorize(self, name: RegistryName, url: str, answer: Response) -> str:
        """Return the `Authorization` header that a 401 answer asks for: with a token if the registry accepts one."""
        challenges = read_challenges(answer.headers.get("WWW-Authenticate", ""))
        login = login_of(name.host, environ=self._environ)
        if "bearer" in challenges:
            return f"Bearer {self._token(challenges['bearer'], name, url, login)}"
        if "basic" in challenges and login and login.user:
            return login.basic
        raise RegistryDenied(f"{name.host}: requires a login for {name.repository}; run `docker login {name.host}`")

    def _token(self, challenge: Mapping[str, str], name: RegistryName, asked: str, login: Login | None) -> str:
        """Ask the token service for a token; `asked` is the address that the registry answered with 401."""
        if not may_lead(asked, challenge.get("realm", "")):
            raise RegistryTrouble(f"{name.host}: names no token service that is safe to ask; is it a registry?")
        url = token_url(challenge, name.repository)
        service, form = host_of(url), None
        if login and login.identity:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": login.identity,
                "client_id": "harness",
                "service": challenge.get("service", ""),
                "scope": f"repository:{name.repository}:pull",
            }
        answer = self._exchange.ask(
            Question(
                url=url,
                method="POST" if form else "GET",
                form=form,
                authorization=login.basic if login and not form else None,
                verify=self._verify(RegistryName(host=service, repository="")),
                whole_json=True,
            )
        )
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


def _speaks_tls(server: str) -> bool:
    """Return whether a server on this machine speaks TLS; False if it is down, which the first request reports."""
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


# ---------------------------------------------------------------- challenges: the header WWW-Authenticate (RFC 9110)


PART = re.compile(
    r"""[\s,]*(?:
        (?P<key>[\w-]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s,"]*))
        |(?P<scheme>[A-Za-z][\w-]*)(?=[\s,]|$)
    )""",
    re.VERBOSE,
)


def read_challenges(header: str) -> dict[str, dict[str, str]]:
    """Return the parameters of each challenge of a header, by its scheme, up to the first part that cannot be parsed.
    Schemes and the names of parameters are in lower case."""
    found: dict[str, dict[str, str]] = {}
    parameters: dict[str, str] = {}
    at = 0
    while part := PART.match(header, at):
        at = part.end()
        if part["scheme"]:
            parameters = found[part["scheme"].lower()] = {}
        else:
            quoted = part["quoted"]
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else part["bare"]
            parameters.setdefault(part["key"].lower(), value)
    return found


def token_url(challenge: Mapping[str, str], repository: str) -> str:
    """Return the URL of a token that allows reading `repository`. `challenge`: a bearer challenge, whose `realm` is the
    address of the token service.

    The scope is always our own, because nvcr.io sends an empty one (`scope=""`), and an older form of its challenge has
    one in the realm that requests push access as well.
    """
    parts = urlsplit(challenge.get("realm", ""))
    asked = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("scope", "service")]
    service = challenge.get("service") or dict(parse_qsl(parts.query)).get("service", "")
    asked += [("service", service)] if service else []
    asked.append(("scope", f"repository:{repository}:pull"))
    return urlunsplit(parts._replace(query=urlencode(asked, safe=":/"), fragment=""))


# ---------------------------------------------------------------- logins


HUB_KEY = "https://index.docker.io/v1/"
IDENTITY = "<token>"  # the user name under which helpers keep identity tokens
HELPER_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Login:
    """A user and password, or an identity token (a refresh token of OAuth 2) for the token service."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """Return the value of an `Authorization` header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def login_of(host: str, *, environ: Mapping[str, str]) -> Login | None:
    """Return the login for a registry that Docker's `config.json` has, or a helper that it names. In Docker's order:
    the host's helper, the general store, the file. It is read at every use, since `docker login` may come later.

    Raises RegistryTrouble if the configuration cannot be read or a helper fails.
    """
    try:
        folder = environ.get("DOCKER_CONFIG") or Path(environ.get("HOME") or Path.home()) / ".docker"
    except RuntimeError:  # this user has no home folder, and so no logins
        return None
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RegistryTrouble(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise RegistryTrouble(f"{path}: is not a JSON object; repair it, or run `docker login` again")
    key = HUB_KEY if host == DOCKER_HUB else host
    helpers, auths = (table if isinstance(table := config.get(each), dict) else {} for each in ("credHelpers", "auths"))
    helper = helpers.get(host) or config.get("credsStore")
    if helper and (stored := _ask_helper(str(helper), key, path=path, environ=environ)):
        return stored
    for name in (key, host, f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/"):
        entry = auths.get(name)
        if isinstance(entry, dict) and (login := _entry(entry, name, path=path)):
            return login
    return None


def _entry(entry: Mapping[str, Any], name: str, *, path: Path) -> Login | None:
    if entry.get("identitytoken"):
        return Login(identity=str(entry["identitytoken"]))
    if not entry.get("auth"):
        return None
    try:
        user, colon, password = base64.b64decode(str(entry["auth"]), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
    if not colon:
        raise RegistryTrouble(f"{path}: auths.{name}: cannot be read; run `docker login` again")
    return Login(user=user, password=password.rstrip("\0"))


def _ask_helper(helper: str, key: str, *, path: Path, environ: Mapping[str, str]) -> Login | None:
    """Return the login that a helper has for `key` (protocol of docker-credential-helpers); None if it has none."""
    name = f"docker-credential-{helper}"
    program = shutil.which(name, path=environ.get("PATH"))
    if program is None:
        raise RegistryTrouble(
            f"{path}: names {name}, which is not on the PATH; install it, or remove it from that file"
        )
    try:
        done = subprocess.run(
            [program, "get"], input=key.encode(), capture_output=True, timeout=HELPER_S, check=False,
            env=dict(environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RegistryTrouble(f"{name}: does not answer ({type(error).__name__}); see {path}") from None
    if done.returncode != 0:
        if b"not found" in done.stdout.lower() + done.stderr.lower():
            return None
        raise RegistryTrouble(f"{name}: exited with {done.returncode} when asked for {key}; run it by hand to see why")
    try:
        said = json.loads(done.stdout)
        user, secret = str(said["Username"]), str(said["Secret"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RegistryTrouble(f"{name}: does not respond like a credential helper; see {path}") from None
    if user == IDENTITY:
        return Login(identity=secret)
    return Login(user=user, password=secret) if user or secret else None
