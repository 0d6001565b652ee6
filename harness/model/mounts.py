"""Defines records of the data and the caches that a launch sees without a copy of the harness's own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from harness.model.from_file import FromFile, Later

if TYPE_CHECKING:
    from harness.model import forms
else:
    forms = Later("harness.model.forms")


Identity = Literal["files", "content", "name"]
"""What tells whether mounted data are the same: the names, sizes and times of all files, their content, or only the
name of the path."""


@dataclass(frozen=True, kw_only=True)
class Mount(FromFile):
    """A file or folder of the host that each launch sees, read-only and without a copy."""

    source: Annotated[Path, forms.Located(), forms.key("from")]
    """The file or folder on each host that runs the scenario; relative to the matrix file."""
    at: forms.Text
    """Its path in a launch: absolute, or relative to the folder in which the program runs."""
    identity: Identity = "files"
    """What makes launches new if it changes: files (names, sizes and times), content, or name. Default: files."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", normal_path(self.source))

    @property
    def is_absolute(self) -> bool:
        """Return whether it is at its path itself: a link in the trial's own folder leads to any other."""
        return self.at.startswith("/")


@dataclass(frozen=True, kw_only=True)
class Cache(FromFile):
    """A folder in which each launch can write, and of which no other launch sees what it wrote."""

    name: Annotated[forms.Name, forms.key("cache")]
    """The name of a cache, such as hub."""
    at: forms.Text
    """Its path in a launch: absolute, relative to the folder in which the program runs, or in its home (~/.cache)."""
    start: Literal["warm", "cold"] = "warm"
    """warm: each launch begins with a copy of what one launch of the same version, which is not counted, left in it;
    cold: with an empty folder. Default: warm."""

    @property
    def is_absolute(self) -> bool:
        """Return whether no link leads to it."""
        return self.at.startswith("/")

    @property
    def is_warm(self) -> bool:
        return self.start == "warm"


def normal_path(path: Path) -> Path:
    """Return the absolute path without `..`, which could lead out of the trial's folder. Links are not resolved."""
    return Path(os.path.normpath(path.absolute()))
