"""Determines which images readers of a bug report can get: those in public registries, not those of one machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harness.model import Build, Install, Pull, Trial
from harness.model.answers.evidence import Issue

PUBLIC = frozenset(
    {"docker.io", "gcr.io", "ghcr.io", "mcr.microsoft.com", "nvcr.io", "public.ecr.aws", "quay.io", "registry.k8s.io"}
)
OUR_BASE = "harness-base:bookworm"
"""The image that `make base` builds to replace the public default base if no registry is reachable."""
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*([^\s$]+)", re.IGNORECASE | re.MULTILINE)


def public_base(source: Install, trials: Sequence[Trial]) -> str:
    """Return a base image that readers can get: OUR_BASE is replaced by the public image with the same Python version,
    if that version is known.
    """
    pythons = [trial.facts.get("python") for trial in trials]
    known = next(
        (python for python in pythons if isinstance(python, str) and re.fullmatch(r"\d+\.\d+[\w.]*", python)), ""
    )
    if source.base != OUR_BASE or not known:
        return source.base
    return f"python:{'.'.join(known.split('.')[:2])}-slim-bookworm"


def registry(reference: str) -> str:
    """Return the registry host of an image reference; a name without a host is on Docker Hub, `docker.io`."""
    first, slash, _ = reference.partition("/")
    return first if slash and (re.search(r"[.:]", first) or first == "localhost") else "docker.io"


def private_registries(issue: Issue) -> list[str]:
    """Return the registries in the report that readers may be unable to reach, each once."""
    return sorted({registry(reference) for reference in _references(issue)} - PUBLIC)


def local_images(issue: Issue) -> list[str]:
    """Return the images that no registry is known to have: OUR_BASE, and an image that was launched by its id."""
    named = [name for name in _references(issue) if name.split(":")[0] == OUR_BASE.split(":", maxsplit=1)[0]]
    source, trial = issue.bad.cell.image.source, issue.trial
    if isinstance(source, Pull) and trial is not None and trial.image.digest == trial.image.reference != "":
        named.append(source.reference)
    return list(dict.fromkeys(named))


def _references(issue: Issue) -> Iterator[str]:
    """Yield the names of all images in the report."""
    for entry in (issue.bad, *issue.history):
        source = entry.cell.image.source
        if isinstance(source, Pull):
            yield source.reference
        elif isinstance(source, Install) and not entry.cell.lane.host.in_environments:
            yield source.base
    if isinstance(issue.bad.cell.image.source, Build):
        yield from _FROM.findall(issue.dockerfile)
