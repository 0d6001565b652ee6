"""Defines what a command adds to the reports of a run that has ended: what the functions in `doors.SECTIONS` return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.model import Recipe
from harness.report.blocks import Block, ReportSection


@dataclass(frozen=True)
class Added:
    """The results of one command on a run. A package has a subclass, and a function (run's directory, plan) that reads
    it; what a subclass does not define, it does not add.

    `name` is that of its section and of its list in `summary.json`, `title` and `about` are above its own part of the
    page.
    """

    results: Sequence[Any] = ()
    name = title = about = ""

    def on(self, finding: int) -> Added:
        """Return only the results on a finding, which is given by its number."""
        return type(self)(results=[each for each in self.results if getattr(each, "finding", None) == finding])

    def lines(self, *, numbered: bool = True) -> Sequence[str]:
        """Return sentences for all reports; `numbered`: with the numbers of the findings."""
        return ()

    def sections(self) -> Iterable[ReportSection]:
        """Return what the page and Markdown show in full."""
        return ()

    def summary(self) -> Sequence[Mapping[str, Any]]:
        """Return the entries in `summary.json`."""
        return ()

    def reproduction(self, recipe: Recipe | None) -> Iterable[Block]:
        """Return what a bug report adds to the commands of a reproduction."""
        return ()


def added_to(added: Iterable[object]) -> list[Added]:
    return [each for each in added if isinstance(each, Added)]
