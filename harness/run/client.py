"""A connection to a Docker Engine, and its errors in our words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import docker
from docker.context import ContextAPI
from docker.errors import APIError, DockerException
from paramiko import SSHException  # type: ignore[import-untyped]
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from harness.errors import EngineUnreachable, InfrastructureError
from harness.model import Host

# All that a call of the SDK may raise when an engine refuses, is lost or is none: it wraps some of it, not all.
ENGINE_ERRORS = (DockerException, RequestException, HTTPError, HTTPException, SSHException, EOFError, OSError)
CHECK_S = 5
CALL_S = 300  # committing or removing a layer of many GiB is one silent call
PROXIES = tuple(
    name for base in ("http_proxy", "https_proxy", "no_proxy", "all_proxy") for name in (base, base.upper())
)
FULL_DISK = "no space left on device"


def connect(host: Host, *, environ: Mapping[str, str]) -> docker.DockerClient:
    """A client whose engine has answered. Raises EngineUnreachable within seconds."""
    try:
        client = _client(host, environ=environ)
    except (*ENGINE_ERRORS, ValueError) as error:  # ValueError: an address of the environment or of a context
        address = _address(host.engine, environ=environ)
        raise EngineUnreachable(
            f"{host.where}: Cannot connect to the Docker daemon at {address}; start it, or use engine: process"
            f" ({_cause(error)})"
        ) from error
    client.api.timeout = CALL_S
    return client


def _client(host: Host, *, environ: Mapping[str, str]) -> docker.DockerClient:
    """Making a client asks the engine for its version: that is the check."""
    if host.engine.startswith("context:"):
        name = host.engine[len("context:") :]
        _check_context(name, place=host.where)
        client: docker.DockerClient = docker.DockerClient.from_context(name, timeout=CHECK_S)
        return client
    if host.engine != "docker":
        return docker.DockerClient(base_url=host.engine, timeout=CHECK_S)
    if not environ.get("DOCKER_HOST") and (name := environ.get("DOCKER_CONTEXT", "")):
        _check_context(name, place=f"{host.where}: DOCKER_CONTEXT")
    return docker.from_env(environment=dict(environ), timeout=CHECK_S)


def _check_context(name: str, *, place: object) -> None:
    """The SDK takes the local engine for a context that it does not know."""
    known = [context.Name for context in ContextAPI.contexts()]
    if name not in known:
        raise EngineUnreachable(
            f"{place}: no Docker context {name!r}; there are: {', '.join(known)} (`docker context ls`)"
        )


def _address(engine: str, *, environ: Mapping[str, str]) -> str:
    if engine != "docker":
        return engine
    return environ.get("DOCKER_HOST") or environ.get("DOCKER_CONTEXT") or "unix:///var/run/docker.sock"


def _cause(error: BaseException) -> str:
    """The innermost reason in a few words: what the SDK wraps around it says nothing."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)  # below zero: a name's resolution
    return " ".join(str(error).split())[:160] or type(error).__name__


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
            f"{place}: the connection to the engine was lost: {_cause(error)}; see that it runs, then repeat the call:"
            " what was measured is kept"
        ) from error


def _what_to_do(explained: str) -> str:
    if FULL_DISK in explained.lower():
        return "make room on that engine: `harness clean --images`, `docker system prune`"
    return "that engine's log tells more (`journalctl -u docker`)"


def explanation(error: APIError) -> str:
    return " ".join(str(error.explanation or error).split())[:600]


def ca_bundle(environ: Mapping[str, str]) -> str:
    """The CA bundle that this machine was told to use; empty if none was."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        path = Path(environ.get(name, ""))
        if path.is_file():  # requests also takes a folder there, which is no bundle
            return path.read_text(encoding="latin-1")  # comments in it may be in any encoding
    return ""


def proxies(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in PROXIES if name in environ}
