"""A connection to a Docker Engine, and its errors in our words."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import docker
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, InvalidVersion
from docker.utils import kwargs_from_env, version_lt
from docker.utils.config import find_config_file
from paramiko import SSHException  # type: ignore[import-untyped]
from requests import PreparedRequest, Response
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from harness.errors import EngineUnreachable, InfrastructureError
from harness.model import Host
from harness.private import without_credentials
from harness.run.docker.connection import cause, in_time, keep_alive, remedy

# All that a call of the SDK may raise when an engine refuses, is lost or is none: it wraps some of it, not all.
ENGINE_ERRORS = (DockerException, RequestException, HTTPError, HTTPException, SSHException, EOFError, OSError)
logging.getLogger("paramiko").addHandler(logging.NullHandler())  # what it has to say reaches us as an exception
CHECK_S = 5
LEAST_API = "1.40"  # Docker Engine 19.03: the first with device requests
LEAST_PODMAN = (5, 4)  # the first whose API changes a restart policy (the lease) and has device requests
QUICK_S = 30
"""The most that a call may take that only looks or notes; below are those that may take longer, by method and path."""
LONGER_S = {
    re.compile(r"POST \S+/start$"): 90,  # a driver that wakes up eight cards
    re.compile(r"DELETE |PUT |POST \S+/(?:commit|images/create)$|GET \S+/(?:images/json$|distribution/)"): 300,
}
LOST_S = 10
"""For what is still to be asked of an engine that has been silent for too long: tidying up shall not take minutes."""
PROXIES = tuple(
    name for base in ("http_proxy", "https_proxy", "no_proxy", "all_proxy") for name in (base, base.upper())
)
FULL_DISK = "no space left on device"
HOOK = re.compile(r"^.*error running hook.*stderr: (?=\S)")
SILENT_HOOK = re.compile(r"^.*error running hook: ([^,]+), stdout: , stderr:\s*$")
UNKNOWN_CDI_DEVICE = "unresolvable cdi devices"
CDI_REMEDY = (
    "with NVIDIA Container Toolkit 1.15 or later on that machine, which knows GPUs by their UUID, do"
    " `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` there"
)
MAKE_ROOM = "make room on that engine: `harness clean --images`, `docker system prune`"


def connect(host: Host, *, environ: Mapping[str, str]) -> docker.DockerClient:
    """A client whose engine has answered. Raises EngineUnreachable within seconds."""
    try:
        client = in_time(lambda: _client(host, environ=environ))
        _check_version(client)
    except (*ENGINE_ERRORS, ValueError) as error:  # ValueError: an address of the environment or of a context
        address = _address(host.engine, environ=environ)
        to_do = remedy(error, address=address)
        raise EngineUnreachable(
            f"{host.where}: Cannot connect to the Docker daemon at {address}; {to_do} ({cause(error)})"
        ) from error
    keep_alive(client)
    client.api.timeout = QUICK_S
    _limit(client.api)
    return client


def _limit(api: docker.APIClient) -> None:
    """Give each call its time, but for those that bring their own (a pull and a build have no limit)."""
    send = api.send

    def limited(request: PreparedRequest, **options: Any) -> Response:
        is_ours = options.get("timeout") == QUICK_S
        if is_ours:
            called = f"{request.method} {(request.url or '').partition('?')[0]}"
            options["timeout"] = next((limit for path, limit in LONGER_S.items() if path.match(called)), QUICK_S)
        try:
            return send(request, **options)
        except RequestException:
            if is_ours:
                api.timeout = LOST_S
            raise

    api.send = limited  # type: ignore[method-assign]


def _check_version(client: docker.DockerClient) -> None:
    found = str(client.api.api_version)
    if version_lt(found, LEAST_API):
        client.close()
        raise InvalidVersion(f"it has API version {found}")


def _client(host: Host, *, environ: Mapping[str, str]) -> docker.DockerClient:
    """Making a client asks the engine for its version: that is the check."""
    options = _options(host, environ=environ)
    if "tls" not in options:
        return docker.DockerClient(**options, timeout=CHECK_S)
    # REQUESTS_CA_BUNDLE, which a company's proxy needs, would be taken in place of the engine's own CA.
    with contextlib.closing(docker.DockerClient(**options, version=LEAST_API, timeout=CHECK_S)) as asking:
        asking.api.trust_env = False
        version = asking.api.version(api_version=False)["ApiVersion"]
    client = docker.DockerClient(**options, version=version, timeout=CHECK_S)
    client.api.trust_env = False
    return client


def _options(host: Host, *, environ: Mapping[str, str]) -> dict[str, Any]:
    """Address and TLS: of a context those that it has, else by DOCKER_TLS_VERIFY and DOCKER_CERT_PATH."""
    if host.engine.startswith("context:"):
        name = host.engine[len("context:") :]
        _check_context(name, place=host.where)
        return _of_context(name, environ=environ)
    if host.engine != "docker":
        return {**kwargs_from_env({**environ, "DOCKER_HOST": host.engine})}
    if environ.get("DOCKER_HOST"):
        return {**kwargs_from_env(dict(environ))}
    name = environ.get("DOCKER_CONTEXT", "")
    if name:
        _check_context(name, place=f"{host.where}: DOCKER_CONTEXT")
    return _of_context(name or None, environ=environ)


def _of_context(name: str | None, *, environ: Mapping[str, str]) -> dict[str, Any]:
    return {**ContextAPI.kwargs_from_context(name, environment=dict(environ))}


def _check_context(name: str, *, place: object) -> None:
    """The SDK takes the local engine for a context that it does not know."""
    known = [context.Name for context in ContextAPI.contexts()]
    if name not in known:
        hint = "`docker context ls`"
        if find_config_file() is None:  # the SDK looks for contexts beside it alone
            hint = "they are read only beside ~/.docker/config.json, which is not there: put {} into it"
        raise EngineUnreachable(f"{place}: no Docker context {name!r}; there are: {', '.join(known)} ({hint})")


def _address(engine: str, *, environ: Mapping[str, str]) -> str:
    if engine != "docker":
        return engine
    return environ.get("DOCKER_HOST") or environ.get("DOCKER_CONTEXT") or "unix:///var/run/docker.sock"


@contextmanager
def engine_errors(place: object, *, refused: type[InfrastructureError] = InfrastructureError) -> Iterator[None]:
    """Errors of the engine become ours: its refusals `refused`, its silence EngineUnreachable.

    Files of this machine must not be read inside: their errors would be taken for the engine's.
    """
    try:
        yield
    except APIError as error:
        text = explanation(error)
        raise refused(f"{place}: the engine refused: {text}; {_what_to_do(text)}") from error
    except ENGINE_ERRORS as error:
        raise EngineUnreachable(
            f"{place}: the connection to the engine was lost: {cause(error)}; see that it runs, then repeat the call:"
            " what was measured is kept"
        ) from error


def is_podman(info: Mapping[str, Any]) -> bool:
    """By an engine's `info`: Podman answers as Docker does, and adds some of its own."""
    return "BuildahVersion" in info


def check_podman(info: Mapping[str, Any], *, place: object) -> None:
    """Raises EngineUnreachable for a Podman that would lose its lease and start trials without their GPUs, unasked."""
    found = re.match(r"(\d+)\.(\d+)", str(info.get("ServerVersion")))
    if is_podman(info) and (found is None or (int(found[1]), int(found[2])) < LEAST_PODMAN):
        needed = ".".join(map(str, LEAST_PODMAN))
        raise EngineUnreachable(f"{place}: Podman {info.get('ServerVersion')} is too old; {needed} or later is needed")


def _what_to_do(explained: str) -> str:
    if FULL_DISK in explained.lower():
        return MAKE_ROOM
    if UNKNOWN_CDI_DEVICE in explained.lower():
        return CDI_REMEDY
    return "that engine's log tells more (`journalctl -u docker`, or `-u podman`)"


def if_full(said: str) -> str:
    """`; make room on that engine …` where the disk was full, else nothing."""
    return f"; {MAKE_ROOM}" if FULL_DISK in said.lower() else ""


def explanation(error: APIError) -> str:
    """In one line, the reason first: what a hook said stands behind all the programs that it was passed through."""
    said = without_credentials(" ".join(str(error.explanation or error).split()))
    said = SILENT_HOOK.sub(r"its hook failed and said nothing (\1)", said.removesuffix(": unknown"))
    return HOOK.sub("its hook failed: ", said)[:600]


def ca_bundle(environ: Mapping[str, str]) -> str:
    """The CA bundle that this machine was told to use; empty if none was."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        path = Path(environ.get(name, ""))
        if path.is_file():  # requests also takes a folder there, which is no bundle
            return path.read_text(encoding="latin-1")  # comments in it may be in any encoding
    return ""


def proxies(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in PROXIES if name in environ}
