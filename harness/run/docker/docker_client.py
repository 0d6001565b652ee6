"""Connects to a Docker Engine, and turns the engine's errors into errors of the harness that include a remedy."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

import docker
from docker.context import ContextAPI
from docker.context.config import get_current_context_name, get_meta_dir, get_meta_file
from docker.errors import APIError, DockerException, InvalidVersion
from docker.utils import kwargs_from_env, version_lt
from docker.utils.config import find_config_file
from paramiko import SSHException  # type: ignore[import-untyped]
from requests import PreparedRequest, Response
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from harness.errors import EngineUnreachable, InfrastructureError, chain_of
from harness.masking import without_credentials
from harness.model import Host

# All errors that a call of the SDK may raise if an engine refuses it, is lost or is not an engine at all.
ENGINE_ERRORS = (DockerException, RequestException, HTTPError, HTTPException, SSHException, EOFError, OSError)
logging.getLogger("paramiko").addHandler(logging.NullHandler())  # exceptions report the same messages
SOCKET = Path("/var/run/docker.sock")
"""Where an engine of this machine listens if nothing else is configured."""
CHECK_S = 5
LEAST_API = "1.40"  # Docker Engine 19.03: the first with device requests
QUICK_S = 30
"""Time limit of a call in seconds, unless `LONGER_S` gives a longer one."""
LONGER_S = {
    re.compile(r"POST \S+/start$"): 90,  # the driver may have to initialise eight cards
    re.compile(r"DELETE |PUT |POST \S+/(?:commit|images/create)$|GET \S+/(?:images/json$|distribution/)"): 300,
}
LOST_S = 10
"""Time limit of each call in seconds once a call has failed, so that cleaning up does not take minutes."""
PROXIES = tuple(
    name for base in ("http_proxy", "https_proxy", "no_proxy", "all_proxy") for name in (base, base.upper())
)
FULL_DISK = "no space left on device"
HOOK = re.compile(r"^.*error running hook.*stderr: (?=\S)")
SILENT_HOOK = re.compile(r"^.*error running hook: ([^,]+), stdout: , stderr:\s*$")
UNKNOWN_CDI_DEVICE = "unresolvable cdi devices"
CDI_REMEDY = (
    "on that machine, install NVIDIA Container Toolkit 1.15 or later, which names GPUs by their UUID, and run"
    " `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
)
MAKE_ROOM = "free some space on that engine: `harness clean --images`, `docker system prune`"


def connect(host: Host, *, environ: Mapping[str, str]) -> docker.DockerClient:
    """Return a client whose engine has answered. Raises EngineUnreachable, after REACHED_S seconds at the latest."""
    try:
        client = with_time_limit(lambda: _client(host, environ=environ))
        version = str(client.api.api_version)
        if version_lt(version, LEAST_API):
            client.close()
            raise InvalidVersion(f"it has API version {version}")
    except (*ENGINE_ERRORS, ValueError) as error:  # ValueError: an address of the environment or of a context
        name, _ = _context(host, environ=environ)
        own = environ.get("DOCKER_HOST") or (f"context:{name}" if name != "default" else f"unix://{SOCKET}")
        address = own if host.engine == "docker" else host.engine
        what = f"Cannot connect to the Docker daemon at {address}; {remedy(error, address=address)} ({cause(error)})"
        raise EngineUnreachable(what, place=host.where) from error
    keep_alive(client)
    api, send = client.api, client.api.send
    api.timeout = QUICK_S

    def limited(request: PreparedRequest, **options: Any) -> Response:
        """Set the time limit of calls that do not set their own (a pull and a build have no limit)."""
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
    return client


def is_configured(*, environ: Mapping[str, str]) -> bool:
    """Return whether the environment or a context names an engine, or one listens at the default address."""
    named = environ.get("DOCKER_HOST") or environ.get("DOCKER_CONTEXT") or get_current_context_name()
    return named not in (None, "", "default") or SOCKET.exists()


def _client(host: Host, *, environ: Mapping[str, str]) -> docker.DockerClient:
    """Return a new client. Creating it asks the engine for its version, which proves that the engine answers."""
    options = _options(host, environ=environ)
    if "tls" not in options:
        return docker.DockerClient(**options, timeout=CHECK_S)
    # Otherwise requests would use REQUESTS_CA_BUNDLE (set for a company's proxy) instead of the engine's own CA.
    with contextlib.closing(docker.DockerClient(**options, version=LEAST_API, timeout=CHECK_S)) as asking:
        asking.api.trust_env = False
        version = asking.api.version(api_version=False)["ApiVersion"]
    client = docker.DockerClient(**options, version=version, timeout=CHECK_S)
    client.api.trust_env = False
    return client


def _options(host: Host, *, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the address and the TLS settings, from the context or else from the environment (DOCKER_TLS_VERIFY,
    DOCKER_CERT_PATH). Raises EngineUnreachable if the context is unknown: the SDK would silently use the local engine
    instead."""
    address = host.engine if host.engine != "docker" else environ.get("DOCKER_HOST", "")
    if address and not address.startswith("context:"):
        return {**kwargs_from_env({**environ, "DOCKER_HOST": address})}
    name, place = _context(host, environ=environ)
    if name != "default":
        _check_context(name, place=place)
    return {**ContextAPI.kwargs_from_context(name, environment=dict(environ))}


def _context(host: Host, *, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the context to use if no address is given, and the place that names it."""
    if host.engine.startswith("context:"):
        return host.engine.removeprefix("context:"), str(host.where)
    if name := environ.get("DOCKER_CONTEXT"):
        return name, f"{host.where}: DOCKER_CONTEXT"
    return get_current_context_name() or "default", f"{host.where}: currentContext of ~/.docker/config.json"


def _check_context(name: str, *, place: str) -> None:
    """Raise EngineUnreachable if a context is unknown or its file cannot be read."""
    file = Path(get_meta_file(name))
    if not file.is_file():
        names = ["default", *sorted(filter(None, map(_name_in, Path(get_meta_dir()).glob("*/meta.json"))))]
        hint = "`docker context ls`"
        if find_config_file() is None:  # the SDK looks for contexts only in the folder of that file
            hint = "others are found only if ~/.docker/config.json exists: create it with the content {}"
        raise EngineUnreachable(
            f"no Docker context {name!r}; the contexts are: {', '.join(names)} ({hint})", place=place
        )
    if _name_in(file) is None:
        text = f"the Docker context {name!r} cannot be read from {file}; see `docker context inspect {name}`"
        raise EngineUnreachable(text, place=place)


def _name_in(file: Path) -> str | None:
    """Return the name of the context in its file; None if the file cannot be read or describes none."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return str(told["Name"]) if {"Metadata", "Endpoints"} <= told.keys() else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


@contextmanager
def engine_errors(place: object, *, refused: type[InfrastructureError] = InfrastructureError) -> Iterator[None]:
    """Turn errors of the engine into errors of the harness: a refusal into `refused`, a lost connection into
    EngineUnreachable.

    Do not read files of this machine inside the block: an OSError would be taken for a lost connection.
    """
    try:
        yield
    except APIError as error:
        text = explanation(error)
        remedy = "see that engine's log (`journalctl -u docker`, or `-u podman`)"
        if FULL_DISK in text.lower():
            remedy = MAKE_ROOM
        elif UNKNOWN_CDI_DEVICE in text.lower():
            remedy = CDI_REMEDY
        raise refused(f"the engine refused: {text}; {remedy}", place=place) from error
    except ENGINE_ERRORS as error:
        raise EngineUnreachable(
            f"the connection to the engine was lost: {cause(error)}; check that it runs, then repeat the command:"
            " what was measured is kept",
            place=place,
        ) from error


def if_full(message: str) -> str:
    """Return "; " and MAKE_ROOM if a message reports a full disk, else ""."""
    return f"; {MAKE_ROOM}" if FULL_DISK in message.lower() else ""


def explanation(error: APIError) -> str:
    """Return the engine's explanation in one line of at most 600 characters. The names of the programs that passed on a
    hook's message, which precede it, are removed.
    """
    text = without_credentials(" ".join(str(error.explanation or error).split()))
    text = SILENT_HOOK.sub(r"its hook failed without a message (\1)", text.removesuffix(": unknown"))
    return HOOK.sub("its hook failed: ", text)[:600]


def engine_time_s(client: docker.DockerClient) -> int:
    """Return the engine's clock in seconds since the epoch, from the Date header of its answer."""
    api = client.api
    answer = api.get(f"{api.base_url}/_ping", timeout=api.timeout)
    return round(parsedate_to_datetime(answer.headers["Date"]).timestamp())


def moment(text: str) -> datetime:
    """Return the engine's timestamp without its fraction: Python 3.10 cannot parse nanoseconds."""
    return datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))


def ca_bundle(environ: Mapping[str, str]) -> str:
    """Return the CA bundle that SSL_CERT_FILE or REQUESTS_CA_BUNDLE names; "" if neither names a file."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        path = Path(environ.get(name, ""))
        if path.is_file():  # requests also accepts a folder, which is not a bundle
            return path.read_text(encoding="latin-1")  # comments in it may be in any encoding
    return ""


def proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy variables of this machine's environment. Their values may contain credentials."""
    return {name: environ[name] for name in PROXIES if name in environ}


# ---------------------------------------------------------------- time limits, lost engines and remedies


REACHED_S = 20.0
"""Time limit for opening a connection in seconds. Without it, a silent SSH server would block the harness forever."""
KEEPALIVE_S = 10
"""Interval of the keep-alive probes in seconds. After three unanswered probes, the connection counts as lost."""
SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]
if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
    SOCKET_OPTIONS += [
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 3000 * KEEPALIVE_S),
    ]
REMOTE = {"ssh://": "`ssh` to it and try `docker version` there", "tcp://": "check that it runs and listens there"}
START = "start it, or use engine: process"
REMEDIES = {
    r"Authentication failed|No authentication methods|private key|Permission denied \(publickey": (
        "its SSH server refused the key; `ssh` to it must work without a prompt (ssh-add, ~/.ssh/config)"
    ),
    r"PermissionError|\[Errno 13\]": (
        "this user may not use it; join the group `docker` (`sudo usermod -aG docker $USER`, then log in again), or use"
        " engine: process"
    ),
    r"not found in known_hosts": "its host key is not known here; `ssh` to it once and verify the key",
    r"Host key for server": "its host key has changed; find out why, then remove the old key with `ssh-keygen -R`",
    r"HTTP request to an HTTPS server": (
        "it requires TLS; set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH, or use a context that has its certificates"
    ),
    r"WRONG_VERSION_NUMBER|HTTP_REQUEST|RECORD_LAYER": (
        "it does not speak TLS; unset DOCKER_TLS_VERIFY and DOCKER_CERT_PATH"
    ),
    r"Path to a certificate and key": "DOCKER_CERT_PATH must be a folder with ca.pem, cert.pem and key.pem",
    r"(?i)certificate|unknown ca|tlsv\d+ alert|EOF occurred in violation": (
        "its certificate and those in DOCKER_CERT_PATH do not match; check ca.pem, cert.pem and key.pem there"
    ),
    r"(?i)name or service not known|name resolution|nodename nor servname": "its name cannot be resolved; check it",
    r"SSH-\d": "an SSH server answers there; use `engine: ssh://…`",
    r"404 Client Error": "the service that answers there is not a Docker Engine; check address, port and http_proxy",
    r"API versions below|has API version": "it is too old; Docker Engine 19.03 or later is needed (API 1.40)",
}

T = TypeVar("T")


def remedy(error: BaseException, *, address: str) -> str:
    """Return a remedy for an engine at `address` that could not be reached because of `error`."""
    messages = " ".join(map(str, chain_of(error)))
    for pattern, text in REMEDIES.items():
        if re.search(pattern, messages):
            return text
    if address.startswith("ssh://") and ("Remote end closed" in messages or "Channel closed" in messages):
        return "`docker` does not answer there; `ssh` to it and try `docker version`"
    return REMOTE.get(address[:6], START)


def cause(error: BaseException) -> str:
    """Return a short description of the innermost error: the SDK's errors around it add nothing."""
    inner = chain_of(error)[-1]
    if isinstance(inner, ssl.SSLError):  # its errno is not an error number of the system
        return str(inner.reason or inner)
    if isinstance(inner, OSError) and inner.errno is not None and inner.errno > 0:
        return os.strerror(inner.errno)
    if isinstance(inner, OSError) and inner.strerror:  # a failed name resolution, or several addresses
        return str(inner.strerror)
    return " ".join(str(inner).split())[:160] or type(inner).__name__


def with_time_limit(make: Callable[[], T], *, seconds: float = REACHED_S) -> T:
    """Return the result of `make` or raise its error. Raises TimeoutError after `seconds`; the daemon thread that calls
    `make` then goes on until `make` returns or this process ends.
    """
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(make())
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return answer.result(seconds)
    except FutureTimeout:
        if answer.done():  # it is the error of `make`
            raise
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None


def keep_alive(client: docker.DockerClient) -> None:
    """Make the kernel detect within half a minute that the engine's machine is gone, so that every call fails then."""
    for adapter in client.api.adapters.values():
        if (manager := getattr(adapter, "poolmanager", None)) is not None:  # tcp
            manager.connection_pool_kw["socket_options"] = SOCKET_OPTIONS
            manager.clear()
        if (ssh := getattr(adapter, "ssh_client", None)) is not None:
            transport: Any = ssh.get_transport()
            transport.set_keepalive(KEEPALIVE_S)
            for option in SOCKET_OPTIONS if isinstance(transport.sock, socket.socket) else ():  # else a ProxyCommand
                transport.sock.setsockopt(*option)


# ---------------------------------------------------------------- Podman


LEAST_PODMAN = (5, 4)  # the first whose API can change a restart policy (needed by the lease) and has device requests


def is_podman(info: Mapping[str, Any]) -> bool:
    """Return whether an engine's `info` is Podman's, which has Docker's fields and additional ones."""
    return "BuildahVersion" in info


def check_podman(info: Mapping[str, Any], *, place: object) -> None:
    """Raise EngineUnreachable for a Podman that would lose its lease and silently start trials without GPUs."""
    version = re.match(r"(\d+)\.(\d+)", str(info.get("ServerVersion")))
    if is_podman(info) and (version is None or (int(version[1]), int(version[2])) < LEAST_PODMAN):
        needed = ".".join(map(str, LEAST_PODMAN))
        raise EngineUnreachable(
            f"Podman {info.get('ServerVersion')} is too old; {needed} or later is needed", place=place
        )
