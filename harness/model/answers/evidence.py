"""Defines records of evidence for others: how to launch a cell without the harness, what changed, and a bug report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.model.answers.narrowed import Narrowed
from harness.model.judged import Finding
from harness.model.matrix import Source
from harness.model.measured import Trial
from harness.model.planned import Cell
from harness.model.result import CellResult


@dataclass(frozen=True, kw_only=True)
class Container:
    """A `docker run`. `client` is the command that reaches the engine: `docker`, or `docker --host ssh://…`.

    `image` is the launched image, by digest or id; `source` says how to get it on another engine. `options` are the
    flags without the environment. `withheld` names further variables that were set, whose values are private.
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
    """An interpreter of a machine, with the packages of a cell. `python` is the interpreter that was launched, "" if
    unknown; `version` and `packages` (all of them, as `name==version`) suffice to recreate it."""

    python: str
    version: str
    packages: tuple[str, ...]
    memory_bytes: int | None = None
    environment: tuple[tuple[str, str], ...] = ()
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything needed to launch a cell without the harness. `script` is the scenario's text, None for a command.

    `files` are the scenario's other files; `missing` are the paths of needed files that the run's directory lacks.
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
    """One item before and after the change; None if it is absent."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class Section:
    """One kind of item: what changed, the number of unchanged items, and what is unknown (a sentence, or "")."""

    title: str
    changes: tuple[Changed, ...] = ()
    same: int = 0
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class EnvironmentDifference:
    """The changes across a finding's boundary, from version `before` to version `after`."""

    finding: Finding
    before: str
    after: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, kw_only=True)
class Issue:
    """The content of a bug report. `history` is the finding's row, oldest first; `bad` and `good` are the cells at its
    boundary.

    `trial` is one that shows the fault. `elsewhere` are the other cells of the bad version, with and without the fault.
    `causes` are the sentences of the attribution.
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
    """Output lines of the bad version that the good one does not print, without parts that vary between launches."""
    narrowed: tuple[Narrowed, ...] = ()
    """Results of `harness narrow` for the finding."""
    problem: str = ""
    """Why there is no recipe."""
    dockerfile: str = ""
    """Text of a built image's Dockerfile; "" if it is unknown."""
