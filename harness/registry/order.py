"""Selects and orders tags by a pattern, two bounds and the version in each tag: 20.12 < 21.02 < 22.12."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from packaging.version import Version

VERSION = re.compile(
    r"v?(?P<version>\d+(?:\.\d+)*(?:[-_.]?(?:alpha|a|beta|b|preview|pre|c|rc)[-_.]?\d*)?(?:\.(?:post|dev)\d+)?)(?=$|[-_.+])",
    re.IGNORECASE | re.ASCII,
)
WILDCARD = re.compile(r"[*?\[]")
MOST_CHARACTERS = 128  # of a tag, and therefore of a bound
PIECE = re.compile(r"\d+|\D+", re.ASCII)


def is_bound(text: str) -> bool:
    """Return whether a text can be `from` or `to`: 20.12, v2.1, 2.0.0rc1."""
    return len(text) <= MOST_CHARACTERS and VERSION.fullmatch(text) is not None


def in_range(tags: Iterable[str], *, match: str, first: str | None = None, last: str | None = None) -> list[str]:
    """Return the tags that fit `match` and lie between two bounds (inclusive), oldest first.

    The version begins at the pattern's first wildcard; tags without a version there, such as `latest`, have no place in
    a history and are left out. Versions are compared only to the precision of a bound: `last="23.03"` includes 23.03.1.
    """
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
