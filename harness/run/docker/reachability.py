"""Limits the time to connect to an engine, detects its loss by keep-alive probes, and names a remedy for each
failure."""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import docker

from harness.errors import chain_of

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
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(make())
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return results[0]


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
