"""Defines the shape of `series`: one kind for each way to specify a history of images."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from harness.matrix.fields import (
    BY_FORM,
    Anything,
    Environment,
    Images,
    NameList,
    Shape,
    Text,
    Truth,
    Variable,
    VersionName,
    Versions,
)


class SeriesEntry(Shape):
    environment: Environment = {}
    """Environment variables of these images, as a mapping or a list of NAME=value; {version} is replaced by the
    version."""
    entrypoint: Truth = True
    """false: start without the image's own entrypoint."""


class TagRange(Shape):
    """The tags that the registry has when the file is read, sorted by the version in them."""

    match: Text
    """Pattern of the tags; the version begins at the first wildcard (* ? [): "*-tf1-py3", "release-*"."""
    from_: Annotated[Text | None, Field(alias="from")] = None
    """The oldest version, inclusive: "20.12"."""
    to: Text | None = None
    """The newest version, including all that begin with it: "23.03"."""


Tags = Annotated[
    Annotated[list[Text], Field(min_length=1), Tag("<list>")] | Annotated[TagRange, Tag("<mapping>")], BY_FORM
]


class Repository(SeriesEntry):
    """Tags of one repository of a registry, oldest first."""

    repository: Text
    """The repository, without a tag: nvcr.io/nvidia/tensorflow."""
    tags: Tags
    """The tags (or sha256 digests), oldest first; or a range of the registry's tags."""


class Listed(SeriesEntry):
    """Any images, listed oldest first."""

    images: Images
    """References, oldest first: a list, or a mapping from a version's name to its reference."""


class Built(SeriesEntry):
    """One Dockerfile, built once per version."""

    build: Text
    """The folder of the Dockerfile, relative to the matrix file."""
    arg: Variable
    """The build arg that takes the version."""
    versions: NameList
    """The versions, oldest first."""
    args: dict[Variable, Anything] = {}
    """Other build args, the same for all versions."""


class OverBase(SeriesEntry):
    """A series of environments on top of one base image, or of virtual environments on a process host."""

    python: Text | None = None
    """The interpreter's version, such as "3.11"; default: the one that runs the harness."""
    base: Text | None = None
    """The image to install on top of; default: HARNESS_BASE if it is set, else python:{python}-slim-bookworm."""


class Installed(OverBase):
    """Python packages installed on top of one base image, or in a virtual environment on a process host."""

    install: NameList
    """Requirements to install, at least one with {version}: ["pandas=={version}", "numpy==1.26.4"]."""
    versions: Versions
    """The versions, oldest first, or a range of the package index: ">=2.0,<2.3"."""


class Locks(OverBase):
    """Requirement or lock files, each with everything that one version installs."""

    locks: dict[VersionName, Text] = Field(min_length=1)
    """The files, oldest first: a mapping from a version's name to its file, relative to the matrix file."""


SERIES_KINDS: dict[str, type[SeriesEntry]] = {
    "repository": Repository, "images": Listed, "build": Built, "install": Installed,
    "locks": Locks,
}  # fmt: skip


def _series_kind(value: Any) -> str | None:
    kinds = [kind for kind in SERIES_KINDS if isinstance(value, dict) and kind in value]
    return f"<{kinds[0]}>" if len(kinds) == 1 else None


AnySeries = Annotated[
    Annotated[Repository, Tag("<repository>")]
    | Annotated[Listed, Tag("<images>")]
    | Annotated[Built, Tag("<build>")]
    | Annotated[Installed, Tag("<install>")]
    | Annotated[Locks, Tag("<locks>")],
    Discriminator(
        _series_kind, custom_error_type="series_kind", custom_error_message=f"exactly one of {', '.join(SERIES_KINDS)}"
    ),
]
