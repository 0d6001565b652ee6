"""Parses image references as Docker does: `ubuntu`, `nvcr.io/nvidia/tensorflow:20.12`, `localhost:5000/x@sha256:…`.
Selects and orders tags by the version in them: 20.12 < 21.02 < 22.12.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from packaging.version import Version

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
        """Return whether the host is this machine, which Docker asks without TLS, or with any certificate."""
        host = self.host.rpartition(":")[0] if re.search(r":\d+$", self.host) else self.host
        try:
            return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
        except ValueError:
            return False

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


# ---------------------------------------------------------------- the order of tags


VERSION = re.compile(
    r"v?(?P<version>\d+(?:\.\d+)*(?:[-_.]?(?:alpha|a|beta|b|preview|pre|c|rc)[-_.]?\d*)?(?:\.(?:post|dev)\d+)?)(?=$|[-_.+])",
    re.IGNORECASE | re.ASCII,
)
VERSION_KEY = "{version}"
"""What stands for the version in the patterns and the requirements of a matrix file."""
WILDCARD = re.compile(r"[*?\[]")
MOST_CHARACTERS = 128  # of a tag, and therefore of a bound
PIECE = re.compile(r"\d+|\D+", re.ASCII)


def is_bound(text: str) -> bool:
    """Return whether a text can be `from` or `to`: 20.12, v2.1, 2.0.0rc1."""
    return len(text) <= MOST_CHARACTERS and VERSION.fullmatch(text) is not None


def in_range(tags: Iterable[str], *, match: str, first: str | None = None, last: str | None = None) -> list[str]:
    """Return the tags that fit `match` and lie between two bounds (inclusive), oldest first.

    In the pattern, `{version}` stands for the version, or else the version begins at the first wildcard; tags without
    one there, such as `latest`, have no place in a history and are left out. Versions are compared only to the
    precision of a bound: `last="23.03"` includes 23.03.1.
    """
    before, key, after = match.partition(VERSION_KEY)
    if key:
        exact = re.compile(f"{re.escape(before)}{VERSION.pattern}{re.escape(after)}", VERSION.flags)
        found = {tag: Version(one["version"]) for tag in tags if (one := exact.fullmatch(tag))}
    else:
        start = WILDCARD.search(match)
        prefix = start.start() if start else 0
        found = {tag: version for tag in tags if fnmatchcase(tag, match) and (version := _version(tag[prefix:]))}
    low, high = (_version(bound) if bound else None for bound in (first, last))
    chosen = [
        tag
        for tag, version in found.items()
        if (low is None or _upto(version, low) >= low) and (high is None or _upto(version, high) <= high)
    ]
    return sorted(chosen, key=lambda tag: (found[tag], _pieces(tag), tag))


def _version(text: str) -> Version | None:
    begins = VERSION.match(text)
    return Version(begins["version"]) if begins else None


def _upto(version: Version, bound: Version) -> Version:
    """Return `version` cut to as many parts as the bound has; all of it if the bound is a pre-release or the like."""
    if bound.pre or bound.dev is not None or bound.post is not None:
        return version
    return Version(".".join(str(part) for part in version.release[: len(bound.release)]))


def _pieces(tag: str) -> list[tuple[int, int, str]]:
    """Split a tag so that numbers sort by value: py3 before py10."""
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in PIECE.findall(tag)]
