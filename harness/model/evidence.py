"""What is handed to others: how a cell is launched without the harness, what changed, and a bug report's content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.model.asked import Source
from harness.model.judged import Finding
from harness.model.measured import Trial
from harness.model.planned import Cell
from harness.model.result import CellResult


@dataclass(frozen=True, kw_only=True)
class Container:
    """A `docker run`. `client` is how the engine is reached: `docker`, or `docker --host ssh://…`.

    `image` is what was launched, by digest or id; `source` how it is had where that is not there. `options` are the
    flags without the environment. `withheld` are variables that were set too, whose values are not to be shown.
    """

    client: tuple[str, ...]
    image: str
    source: Source
    keep_entrypoint: bool
    options: tuple[tuple[str, ...], ...]
    environment: tuple[tuple[str, str], ...] = ()
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An interpreter of a machine, with the packages of a cell. `python` is the one that was launched, "" if unknown;
    `version` and `packages` (`name==version`, all of them) make another one like it."""

    python: str
    version: str
    packages: tuple[str, ...]
    memory_bytes: int | None = None
    environment: tuple[tuple[str, str], ...] = ()
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a cell is launched without the harness. `script` is the scenario's text, None for a command.

    `files` are those beside it, `missing` the places of such as are needed and not kept in the run's directory.
    """

    result: CellResult
    run: Container | Machine
    script: str | None
    files: Mapping[str, bytes]
    missing: tuple[str, ...]
    steps: int

    @property
    def cell(self) -> Cell:
        return self.result.cell


@dataclass(frozen=True, kw_only=True)
class Changed:
    """One thing before and after; None where it is not there."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class Section:
    """One kind of thing: what changed, how many stayed as they were, and what is not known (a sentence, or "")."""

    title: str
    changes: tuple[Changed, ...] = ()
    same: int = 0
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class EnvironmentDifference:
    """What changed across a finding's boundary, from version `before` to version `after`."""

    finding: Finding
    before: str
    after: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, kw_only=True)
class Issue:
    """A bug report's content. `history` is the finding's row, oldest first; `bad` and `good` the cells on its sides.

    `trial` is one that shows it. `elsewhere` are the other cells of the bad version: what shows it too, and what does
    not. `causes` are the sentences on whose fault it is.
    """

    finding: Finding
    history: tuple[CellResult, ...]
    bad: CellResult
    good: CellResult | None
    trial: Trial | None
    recipe: Recipe | None
    difference: EnvironmentDifference | None
    elsewhere: tuple[CellResult, ...] = ()
    causes: tuple[str, ...] = ()
    system: Mapping[str, Any] = field(default_factory=dict)
    new_lines: tuple[str, ...] = ()
    """What the bad version prints and the good one does not, without what differs from launch to launch."""
    problem: str = ""
    """Why there is no recipe."""
    dockerfile: str = ""
    """Of a built image: the text it was built by, "" if that is not known (any more)."""
