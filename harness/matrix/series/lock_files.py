"""Reads `locks:` series and requirement files: each file is one version, with everything that it installs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from harness import model
from harness.matrix.keys import series_keys as keys
from harness.matrix.problems import Context, KeyPath, shown
from harness.matrix.series.packages import Entry, base_image, check_python
from harness.safe_files import read_regular

MOST_BYTES = 4 << 20
HASH = re.compile(r"\s--hash[= ](\S+)")
DIGEST = re.compile(r"[a-z0-9]+:[0-9a-fA-F]+")
PASSED_OVER = ("--only-binary", "--no-binary", "--prefer-binary")
"""Options that tools write at the top of a lock file, and that are ignored."""
COMMENT = re.compile(r"(^|\s)#.*")
HELP = "give a requirement or lock file, such as `pip freeze` or `uv pip compile` writes"


def read_locks(entry: keys.Locks, key: KeyPath, context: Context) -> list[Entry]:
    """Return an image for each file, in the order of the matrix file; problems are added to the context."""
    problem = check_python(entry.python)
    if problem:
        context.add((*key, "python"), problem)
        return []
    result = []
    for name, text in entry.locks.items():
        place = (*key, "locks", name)
        path = context.existing(text, place)
        try:
            if path is not None:
                source = install_of(path, python=entry.python, base=entry.base or context.default_base)
                result.append(Entry(version=name, key=place, source=source))
        except ValueError as error:
            context.add(place, str(error))
    return result


def install_of(path: Path, *, python: str | None, base: str | None) -> model.Install:
    """Return what a requirement or lock file installs. Raises ValueError with the file and the line."""
    hashes: dict[str, tuple[str, ...]] = {}
    places: dict[str, str] = {}
    for requirement, own, place in _requirements(path):
        hashes[requirement] = (*hashes.get(requirement, ()), *own)
        places.setdefault(requirement, place)
    if not hashes:
        raise ValueError(f"{path}: contains no requirement; {HELP}")
    bare = [requirement for requirement, own in hashes.items() if not own]
    if bare and len(bare) < len(hashes):
        raise ValueError(
            f"{places[bare[0]]}: {shown(bare[0])} has no --hash, but other requirements have one; pip needs hashes for "
            "all or none"
        )
    return model.Install(
        base=base_image(base, python=python),
        python=python,
        packages=tuple(hashes),
        hashes=tuple((requirement, own) for requirement, own in hashes.items() if own),
    )


def requirements(path: Path) -> Iterator[str]:
    """Yield the requirements of a file, without their hashes. Raises ValueError with the file and the line."""
    return (requirement for requirement, *_ in _requirements(path))


def _requirements(path: Path) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield each requirement with its hashes and its place. Raises ValueError; its text begins with the place."""
    try:
        text = read_regular(path.resolve(), most_bytes=MOST_BYTES).decode()
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read: {error.strerror or error}; give a requirement or lock file"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not text; {HELP}") from error
    for number, whole in _lines(text):
        line, place = COMMENT.sub("", whole), f"{path}:{number}"
        hashes, words = tuple(HASH.findall(line)), HASH.sub("", line).strip()
        if (not words and not hashes) or words.startswith(PASSED_OVER):
            continue
        if not words:
            raise ValueError(f"{place}: a hash without a requirement; end the line above with a backslash")
        if words.startswith("-"):
            raise ValueError(
                f"{place}: {shown(words)} is an option; give one complete list, as `pip freeze` "
                "writes it, and the index in UV_INDEX_URL or PIP_INDEX_URL"
            )
        if wrong := [each for each in hashes if not DIGEST.fullmatch(each)]:
            raise ValueError(f"{place}: {shown(wrong[0])} is not a hash; write one such as --hash=sha256:0f1e…")
        yield _requirement(words, place), hashes, place


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number; a line that ends with a backslash is joined with the next."""
    begun, whole = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        begun = begun or number
        whole += line.removesuffix("\\")
        if not line.endswith("\\"):
            yield begun, whole
            begun, whole = 0, ""
    if whole:
        yield begun, whole


def _requirement(words: str, place: str) -> str:
    try:
        return str(Requirement(words))
    except InvalidRequirement:
        raise ValueError(f"{place}: {shown(words)} is not a requirement; write one such as numpy==1.26.4") from None
