"""Parses image references as Docker does: `ubuntu`, `nvcr.io/nvidia/tensorflow:20.12`, `localhost:5000/x@sha256:…`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

DOCKER_HUB = "docker.io"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, kw_only=True)
class RegistryName:
    """A parsed reference. `host` is as users and Docker's configuration write it; `reference` is a tag or a digest."""

    host: str
    repository: str
    reference: str = "latest"

    @property
    def server(self) -> str:
        """Return the host that serves the API; Docker Hub's differs from its name."""
        return "registry-1.docker.io" if self.host == DOCKER_HUB else self.host

    @property
    def is_loopback(self) -> bool:
        """Return whether the host is this machine: Docker then accepts a registry without TLS, or with any
        certificate.
        """
        host = self.host.rpartition(":")[0] if re.search(r":\d+$", self.host) else self.host
        try:
            return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
        except ValueError:
            return False

    def at(self, reference: str) -> RegistryName:
        """Return the same repository at another tag or digest."""
        return RegistryName(host=self.host, repository=self.repository, reference=reference)

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}"


def parse(reference: str) -> RegistryName:
    """Parse `reference` as Docker does; without a tag it is `latest`."""
    rest, at, digest = reference.partition("@")
    host, slash, path = rest.partition("/")
    if not slash or not (set(".:") & set(host) or host == "localhost"):
        host, path = DOCKER_HUB, rest
    if host == "index.docker.io":
        host = DOCKER_HUB
    path, _, tag = path.partition(":")
    if host == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    return RegistryName(host=host, repository=path, reference=(digest if at else tag) or "latest")


def split_tag(reference: str) -> tuple[str, str]:
    """Return `host:5000/repository` and `tag` for `host:5000/repository:tag`; a digest is left out."""
    head, slash, tail = reference.partition("@")[0].rpartition("/")
    repository, _, tag = tail.partition(":")
    return f"{head}{slash}{repository}", tag
