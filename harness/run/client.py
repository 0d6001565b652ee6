"""A connection to a Docker Engine, and its errors in our words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from harness.errors import EngineUnreachable, InfrastructureError
from harness.model import Host

CHECK_S = 5
CALL_S = 300  # committing or removing a layer of many GiB is one silent call
PROXIES = tuple(
    name for base in ("http_proxy", "https_proxy", "no_proxy", "all_proxy") for name in (base, base.upper())
)


def connect(host: Host, *, environ: Mapping[str, str]) -> docker.DockerClient:
    """A client whose engine has answered. Raises EngineUnreachable within seconds."""
    try:
        client = _client(host.engine, environ=environ)
    except (DockerException, RequestException, OSError) as error:
        address = _address(host.engine, environ=environ)
        raise EngineUnreachable(
            f"{host.where}: Cannot connect to the Docker daemon at {address}; start it, or use engine: process"
            f" ({_cause(error)})"
        ) from error
    client.api.timeout = CALL_S
    return client


def _client(engine: str, *, environ: Mapping[str, str]) -> docker.DockerClient:
    """Making a client asks the engine for its version: that is the check."""
    if engine == "docker":
        return docker.from_env(environment=dict(environ), timeout=CHECK_S)
    if engine.startswith("context:"):
        client: docker.DockerClient = docker.DockerClient.from_context(engine[len("context:") :], timeout=CHECK_S)
        return client
    return docker.DockerClient(base_url=engine, timeout=CHECK_S)


def _address(engine: str, *, environ: Mapping[str, str]) -> str:
    if engine != "docker":
        return engine
    return environ.get("DOCKER_HOST") or environ.get("DOCKER_CONTEXT") or "unix:///var/run/docker.sock"


def _cause(error: BaseException) -> str:
    """The innermost reason in a few words: what the SDK wraps around it says nothing."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return " ".join(str(error).split())[:160] or type(error).__name__


@contextmanager
def engine_errors(place: object) -> Iterator[None]:
    """Errors of the engine become ours: its refusals InfrastructureError, its silence EngineUnreachable."""
    try:
        yield
    except APIError as error:
        raise InfrastructureError(f"{place}: {explanation(error)}") from error
    except (RequestException, DockerException, OSError) as error:
        raise EngineUnreachable(f"{place}: the engine does not answer: {_cause(error)}") from error


def explanation(error: APIError) -> str:
    return " ".join(str(error.explanation or error).split())[:600]


def ca_bundle(environ: Mapping[str, str]) -> str:
    """The CA bundle that this machine was told to use; empty if none was."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        path = Path(environ.get(name, ""))
        if path.is_file():  # requests also takes a folder there, which is no bundle
            return path.read_text(encoding="utf-8")
    return ""


def proxies(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in PROXIES if name in environ}
