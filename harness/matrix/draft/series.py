"""Makes a series from the versions that a user typed: packages, requirement files, images, or values of a variable."""

from __future__ import annotations

import csv
import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from harness.errors import UsageError, did_you_mean, nearest
from harness.matrix.draft.options import Typed
from harness.model.forms import LETTERS
from harness.registry.image_references import VERSION

PACKAGE = re.compile(r"([A-Za-z0-9][\w.-]*)(\[[\w., -]*\])?\s*={2,3}\s*([^=\s;,]+)", re.ASCII)
BARE = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w., -]*\])?", re.ASCII)
NUMBER = re.compile(r"\d[\d.]*")
FILE = re.compile(r"(\.{0,2}|~)/.*|[^:]*\.(txt|whl)|[^:/]*\.(lock|toml)")
"""A name of a file, whether or not it exists; `registry.in` and `team/app.lock` may be images."""
RANGE = ".."
EXAMPLES = (
    "such as team/app:41 team/app:42, or torch==2.5.1 torch==2.6.0, or old.txt new.txt; or one range, such as "
    "team/app:41..44 or torch==2.1..2.6"
)


@dataclass(frozen=True, kw_only=True)
class DraftSeries:
    """A series of typed versions. `entry`: its keys in a matrix file. `needs_containers`: its versions are images.
    `installs`: the names of the packages that its versions install, as modules are named."""

    name: str
    entry: Mapping[str, Any]
    needs_containers: bool = False
    installs: frozenset[str] = frozenset()

    @property
    def in_place(self) -> bool:
        """Return whether its versions are values of a variable of the machine's own environment."""
        return "vary" in self.entry

    @property
    def is_range(self) -> bool:
        """Return whether its versions are a range, of which the user may not know the members."""
        return isinstance(self.entry.get("versions"), str) or isinstance(self.entry.get("tags"), Mapping)


def series_of(typed: Typed) -> DraftSeries:
    """Return the series of the versions, oldest first. Raises UsageError."""
    words, folder, beside, python = typed.versions, typed.folder, typed.beside, typed.python
    _check_words(words)
    kinds = [_kind(word, folder) for word in words]
    if len(set(kinds)) > 1:
        bare = [word for word, kind in zip(words, kinds, strict=True) if kind == "image" and BARE.fullmatch(word)]
        if "package" in kinds and bare:
            raise UsageError(f"{bare[0]}: has no version; write {bare[0]}==X, where X is one of its versions")
        other = next(word for word, kind in zip(words, kinds, strict=True) if kind != kinds[0])
        raise UsageError(f"{other}: is not of the same kind as {words[0]}; give versions of one kind, {EXAMPLES}")
    if typed.no_entrypoint and kinds[0] != "image":
        raise UsageError(f"--no-entrypoint: is for images; {words[0]} has no entrypoint")
    interpreter = {} if python is None else {"python": python}
    start = {"entrypoint": False} if typed.no_entrypoint else {}
    if kinds[0] == "package":
        return _packages(words, beside, interpreter)
    if beside:
        raise UsageError(f"--with {beside[0]}: is for packages; images and requirement files contain what they need")
    if kinds[0] == "file":
        stems = [Path(word).stem for word in words]
        names = stems if len(set(stems)) == len(stems) else words
        locks = {name: str(folder / word) for name, word in zip(names, words, strict=True)}
        lines = [line for word in words for line in (folder / word).read_text(errors="replace").splitlines()]
        return DraftSeries(name="requirements", entry={"locks": locks, **interpreter}, installs=_module_names(lines))
    if python is not None:
        raise UsageError(f"--python {python}: is for packages and requirement files; images contain their own Python")
    return _images(words, start)


def _check_words(words: Sequence[str]) -> None:
    """Raise UsageError unless these are two or more different versions, or one range."""
    if len(words) < 2 and not any(map(_is_range, words)):
        raise UsageError(f"{len(words)} version{'s' if not words else ''}: give two or more, oldest first, {EXAMPLES}")
    if not all(word.strip() for word in words):
        raise UsageError(f"a version is empty; give each version, {EXAMPLES}")
    if repeated := repeated_in(words):
        raise UsageError(f"{repeated[0]}: appears twice; give each version once")
    if len(words) > 1 and (ranges := list(filter(_is_range, words))):
        raise UsageError(f"{ranges[0]}: is a range; give it alone, or list the versions")
    if len(words) > 1 and BARE.fullmatch(words[0]) and all(map(NUMBER.fullmatch, words[1:])):
        raise UsageError(f"{words[1]}: is not an image; write a version of a package as {words[0]}=={words[1]}")


def _kind(word: str, folder: Path) -> str:
    """Return what a version is: a package, a requirement file or an image. Raises UsageError for anything else."""
    if PACKAGE.fullmatch(word):
        return "package"
    if (folder / word).is_file():
        if word.endswith(".whl"):
            line = f"NAME @ file://{(folder / word).absolute()}"
            raise UsageError(f"{word}: is a wheel; give a requirement file for each version, with the line {line}")
        return "file"
    if FILE.fullmatch(word):
        place, name = (folder / word).absolute().parent, Path(word).name
        beside: list[str] = []
        with suppress(OSError):  # it may be no folder, or one that may be entered and not listed
            beside = sorted(f"{word.removesuffix(name)}{each.name}" for each in place.iterdir())
        near = did_you_mean(word, known=beside)
        raise UsageError(f"{word}: no such file in {place}{near} name a requirement file that exists")
    if package := PACKAGE.fullmatch(word.replace("=", "==")):
        raise UsageError(f"{word}: is not an image; write a version of a package as {package[0]}")
    return "image"


def _packages(words: Sequence[str], beside: Sequence[str], interpreter: Mapping[str, str]) -> DraftSeries:
    pins = [match for match in map(PACKAGE.fullmatch, words) if match]
    first, *names = [f"{match[1]}{match[2] or ''}" for match in pins]
    for name, pin in zip(names, pins[1:], strict=True):
        if name != first and nearest(name, known=[first]) and not name.startswith(first) and not first.startswith(name):
            raise UsageError(
                f"{pin[0]}: is not a version of {first}; did you mean {first}=={pin[3]}? "
                "to add another package to each version, use --with"
            )
        if name != first:
            raise UsageError(f"{name}: give versions of one package; add another one to each with --with {name}==…")
    versions = _release_range(pins[0]) if _is_range(words[0]) else [match[3] for match in pins]
    entry = {"install": [f"{first}=={{version}}", *beside], "versions": versions, **interpreter}
    return DraftSeries(name=safe(pins[0][1]), entry=entry, installs=_module_names(entry["install"]))


def _images(words: Sequence[str], start: Mapping[str, Any]) -> DraftSeries:
    split = [word.rpartition(":") for word in words]
    repositories = {repository for repository, _, _ in split}
    if _is_range(words[0]):
        repository, tags = _tag_range(words[0])
    elif len(repositories) == 1 and all(name and "/" not in tag and "@" not in name for name, _, tag in split):
        repository, tags = repositories.pop(), [tag for _, _, tag in split]  # short names, which suit a report
    else:
        return DraftSeries(name="images", entry={"images": list(words), **start}, needs_containers=True)
    entry = {"repository": repository, "tags": tags, **start}
    return DraftSeries(name=safe(repository.rsplit("/", 1)[-1]), entry=entry, needs_containers=True)


def _is_range(word: str) -> bool:
    """Return whether a version is a range, FROM..TO, of the tags of a repository or the releases of a package."""
    return RANGE in word.rpartition("/")[2] and not FILE.fullmatch(word)


def _release_range(pin: re.Match[str]) -> str:
    """Return the specifier of a range of releases. As for tags, a bound includes all that begins with it. Raises
    UsageError."""
    low, _, high = pin[3].partition(RANGE)
    try:
        SpecifierSet(f">={low},<={high}")  # which may have no local version, such as 2.1+cu118
    except InvalidSpecifier:
        raise UsageError(f"{pin[0]}: is not a range of releases; write it as {pin[1]}==2.1..2.6") from None
    last = Version(high)
    *parts, least = last.release
    end = f"<{last.epoch}!{'.'.join(map(str, [*parts, least + 1]))}".replace("<0!", "<")
    made = f">={low},{f'<={high}' if last.is_prerelease or last.is_postrelease else end}"
    if not SpecifierSet(made).contains(low, prereleases=True):
        raise UsageError(f"{pin[0]}: begins with the newer version; put the older one first: {high}..{low}")
    return made


def _tag_range(word: str) -> tuple[str, Any]:
    """Return the repository and the keys of a range of tags that differ only in their version. Raises UsageError."""
    repository, _, tags = word.rpartition(":")
    low, _, high = tags.partition(RANGE)
    first, last = VERSION.search(low), VERSION.search(high)
    if not repository or first is None or last is None or _around(low, first) != _around(high, last):
        like = f"{repository or 'app'}:24.01-py3..24.10-py3"
        raise UsageError(f"{word}: is not a range of tags; write both tags whole, such as {like}")
    before, after = _around(low, first)
    return repository, {"match": f"{before}{{version}}{after}", "from": first[0], "to": last[0]}


def _around(tag: str, version: re.Match[str]) -> tuple[str, str]:
    return tag[: version.start()], tag[version.end() :]


def _module_names(requirements: Sequence[str]) -> frozenset[str]:
    """Return the names of required packages, written as those of modules."""
    found = (BARE.match(line.strip()) for line in requirements)
    return frozenset(match[0].partition("[")[0].lower().replace("-", "_") for match in found if match)


# ---------------------------------------------------------------- the values of a variable

VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def varied(texts: Sequence[str]) -> tuple[DraftSeries, dict[str, Any]]:
    """Return the series of the first `NAME=a,b,c`, and keys that make each further one a param. Raises UsageError."""
    (name, values), *others = map(_name_and_values, texts)
    if repeated := [other for other, _ in others if other == name] or repeated_in([other for other, _ in others]):
        raise UsageError(f"--vary {repeated[0]}: is given twice; write all of its values in one")
    keys: dict[str, Any] = {}
    if others:
        keys = {"params": dict(others), "environment": {other: f"{{{other}}}" for other, _ in others}}
    return DraftSeries(name=safe(name), entry={"vary": name, "versions": values}), keys


def _name_and_values(text: str) -> tuple[str, list[str]]:
    """Return the parts of `NAME=a,b,c`, which is a line of CSV: quotes keep a comma. Raises UsageError."""
    name, equals, listed = text.partition("=")
    if not VARIABLE.fullmatch(name):
        example = "; write one such as IMAGE=app:1,app:2"
        raise UsageError(f"--vary {text}: {name!r} cannot name an environment variable{example}")
    try:
        values = next(csv.reader([listed], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        remedy = f"put a value with a comma in double quotes, as in --vary '{name}=\"-O2,-g\",-O3'"
        raise UsageError(f"--vary {text}: {error}; {remedy}") from error
    if not equals or len(values) < 2:
        raise UsageError(f"--vary {text}: needs two values or more; write {name}=a,b,c")
    if not all(values):
        raise UsageError(f"--vary {text}: has an empty value; name each value")
    if repeated := repeated_in(values):
        raise UsageError(f"--vary {text}: {repeated[0]!r} appears twice; give each value once")
    return name, values


# ---------------------------------------------------------------- names, and lists in which each word comes once


def safe(text: str) -> str:
    """Return a name that a matrix file allows. A text without any allowed character gets a name from its hash."""
    name = re.sub(rf"[^{LETTERS}_.-]+", "-", unicodedata.normalize("NFC", text)).strip("._-")[:48].rstrip("._-")
    return name or f"it-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:6]}"


def repeated_in(words: Sequence[str]) -> list[str]:
    """Return the words that are not the first of their kind."""
    return [word for number, word in enumerate(words) if word in words[:number]]
