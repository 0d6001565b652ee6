"""Reads the file's series into the model's series, with an image for every version."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from packaging.version import Version

from harness import model
from harness.matrix.keys import MatrixFile
from harness.matrix.keys import series_keys as keys
from harness.matrix.problems import Context, KeyPath, listed, shown, unknown_name
from harness.matrix.series.lock_files import read_locks
from harness.matrix.series.packages import Entry, PackageReader
from harness.matrix.series.tags import read_tags
from harness.registry.registry_client import TagSource

REPOSITORY = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[a-z0-9._-]+)*")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|sha256:[0-9a-f]{64}")
REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,400}")


def read_series(
    file: MatrixFile, context: Context, packages: PackageReader, tags: TagSource
) -> tuple[model.Series, ...]:
    """Return all series. Problems are added to the context."""
    readers: Mapping[type, Callable[[Any, KeyPath], list[Entry]]] = {
        keys.Repository: lambda entry, key: _repository(entry, key, context, tags),
        keys.Listed: lambda entry, key: _listed(entry, key, context),
        keys.Built: lambda entry, key: _built(entry, key, context),
        keys.Installed: packages.read,
        keys.Locks: lambda entry, key: read_locks(entry, key, context),
    }
    for name in file.baseline:
        if name not in file.series:
            context.add(("baseline", name), unknown_name(name, file.series, what="series"))
    result = []
    for name, entry in file.series.items():
        key: KeyPath = ("series", name)
        versions = readers[type(entry)](entry, key)
        _check_unique(versions, context)
        if not (isinstance(entry, keys.Repository) and isinstance(entry.tags, keys.TagRange)):
            _check_order(versions, context)
        _check_baseline(name, file.baseline.get(name), versions, context)
        images = tuple(_image(name, entry, version, context) for version in versions)
        where = context.where(*key)
        result.append(model.Series(name=name, images=images, where=where, baseline=file.baseline.get(name)))
    return tuple(result)


def _image(series: str, entry: keys.SeriesEntry, version: Entry, context: Context) -> model.Image:
    return model.Image(
        series=series,
        version=version.version,
        source=version.source,
        where=context.where(*version.key),
        keep_entrypoint=entry.entrypoint,
        yanked=version.yanked,
        environment=tuple(
            (name, text.replace("{version}", version.version)) for name, text in entry.environment.items()
        ),
    )


# ---------------------------------------------------------------- the kinds


def _repository(entry: keys.Repository, key: KeyPath, context: Context, tags: TagSource) -> list[Entry]:
    if not REPOSITORY.fullmatch(entry.repository):
        text = (
            f"{shown(entry.repository)} is not a repository; write it without a tag, such as nvcr.io/nvidia/tensorflow"
        )
        context.add((*key, "repository"), text)
    elif isinstance(entry.tags, keys.TagRange):
        return read_tags(entry.repository, entry.tags, (*key, "tags"), context, source=tags)
    result = []
    for position, tag in enumerate(entry.tags if isinstance(entry.tags, list) else ()):
        place = (*key, "tags", position)
        if not TAG.fullmatch(tag):
            context.add(place, f"{shown(tag)} is not a tag; letters, digits, _ . and - are allowed")
        mark = "@" if tag.startswith("sha256:") else ":"
        result.append(Entry(version=tag, key=place, source=model.Pull(reference=f"{entry.repository}{mark}{tag}")))
    return result


def _listed(entry: keys.Listed, key: KeyPath, context: Context) -> list[Entry]:
    if isinstance(entry.images, dict):
        named: list[tuple[str | int, str, str]] = [(name, name, reference) for name, reference in entry.images.items()]
    else:
        named = [(position, reference, reference) for position, reference in enumerate(entry.images)]
    result = []
    for step, version, reference in named:
        place = (*key, "images", step)
        if not REFERENCE.fullmatch(reference):
            context.add(place, f"{shown(reference)} is not an image; write repository:tag or repository@sha256:…")
        result.append(Entry(version=version, key=place, source=model.Pull(reference=reference)))
    return result


def _built(entry: keys.Built, key: KeyPath, context: Context) -> list[Entry]:
    text = context.text_of(f"{entry.build}/Dockerfile", (*key, "build"))
    if text is not None and not re.search(rf"^\s*ARG\s.*\b{re.escape(entry.arg)}\b".encode(), text, re.I | re.M):
        problem = f"{entry.build}/Dockerfile has no 'ARG {entry.arg}': all versions would be the same image"
        context.add((*key, "arg"), problem)
    if entry.arg in entry.args:
        context.add((*key, "args", entry.arg), "is the arg that takes the version; remove it here")
    fixed = tuple(entry.args.items())
    return [
        Entry(
            version=version,
            key=(*key, "versions", position),
            source=model.Build(context=context.folder / entry.build, args=((entry.arg, version), *fixed)),
        )
        for position, version in enumerate(entry.versions)
    ]


# ---------------------------------------------------------------- checks on a whole history


def _check_unique(versions: list[Entry], context: Context) -> None:
    first: dict[str, Entry] = {}
    for entry in versions:
        earlier = first.setdefault(entry.version, entry)
        if earlier is not entry:
            line = context.where(*earlier.key).line
            context.add(entry.key, f"{shown(entry.version)} appears twice, first on line {line}; keep one")


def _check_order(versions: list[Entry], context: Context) -> None:
    """Check the order of versions: in a wrong order, "first bad" would name a wrong version."""
    try:
        parsed = [Version(entry.version) for entry in versions]
    except ValueError:
        return  # the user's own names, or numbers too long to parse: only the user knows their order
    for (older, newer), (before, entry) in zip(pairwise(parsed), pairwise(versions), strict=True):
        if older > newer:
            text = f"versions are not oldest first: {before.version} before {entry.version}; put the older one first"
            context.add(entry.key, text)
        elif older == newer and before.version != entry.version and isinstance(entry.source, model.Install):
            context.add(entry.key, f"{before.version} and {entry.version} are the same version; keep one")


def _check_baseline(name: str, baseline: str | None, versions: list[Entry], context: Context) -> None:
    names = [entry.version for entry in versions]
    if baseline is not None and names and baseline not in names:
        text = f"series {name} has no version {shown(baseline)}; it has: {listed(names)}"
        context.add(("baseline", name), text)
