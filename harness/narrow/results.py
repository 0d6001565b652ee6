"""Keeps each result of `harness narrow` in the directory of its run, as `narrow-N.json`, and adds it to the reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.errors import UsageError
from harness.masking import scrubbed
from harness.model import Machine, Plan, Recipe
from harness.narrow import words
from harness.narrow.records import Culprit, Narrowed
from harness.report.added import Added
from harness.report.blocks import Block, Code
from harness.report.issue.reproduction import swapping
from harness.store import RunDirectory
from harness.store.json_files import read_extra

PATTERN = "narrow-*.json"
MOST_FILES = 200
"""Largest number of these files that are read from one run."""
_FILE = TypeAdapter(Narrowed)


def keep_narrowed(narrowed: Narrowed, directory: RunDirectory) -> Path:
    """Write the result of a narrowing into a run's directory; it replaces an earlier result for the same finding and
    versions. Raises InfrastructureError.
    """
    files = _files(directory.path)
    same = [path.name for path in files if _is_same(path, narrowed)]
    taken = {path.name for path in files}
    free = next(name for number in range(1, len(taken) + 2) if (name := f"narrow-{number}.json") not in taken)
    content = json.dumps(_FILE.dump_python(narrowed, mode="json"), indent=1)
    return directory.write(same[0] if same else free, content)


def _is_same(path: Path, narrowed: Narrowed) -> bool:
    """Return whether a file is about the same finding and versions; False if it cannot be read."""
    with suppress(UsageError):
        other = _read(path)
        return (other.finding, other.good, other.bad) == (narrowed.finding, narrowed.good, narrowed.bad)
    return False


def _files(run: Path) -> list[Path]:
    return sorted(run.glob(PATTERN), key=lambda path: (len(path.name), path.name))


def _read(path: Path) -> Narrowed:
    return read_extra(path, _FILE.validate_python)


def read(run: Path, plan: Plan) -> NarrowedFindings:
    """Return the results of all narrowings of a run, in the order of the numbers in their files' names. Raises
    UsageError if a file cannot be read.
    """
    return NarrowedFindings(results=[_read(path) for path in _files(run)[:MOST_FILES]])


# ---------------------------------------------------------------- reports


class NarrowedFindings(Added):
    """The findings of `harness narrow`: for all reports, the sentences; for a bug report, also commands."""

    name, title = "narrowed", "Which component"
    results: Sequence[Narrowed]

    def lines(self, *, numbered: bool = True) -> Sequence[str]:
        return words.lines(each if numbered else replace(each, finding=None) for each in self.results)

    def summary(self) -> Sequence[Mapping[str, Any]]:
        return [_entry(each) for each in self.results]

    def reproduction(self, recipe: Recipe | None) -> Iterator[Block]:
        """Yield the commands that install the good version's component and the bad one's."""
        for narrowed in self.results:
            if specifiers := words.installs(narrowed):
                into, lines = narrowed.good, "\n".join(words.install_lines(narrowed))
                if recipe is not None and isinstance(recipe.run, Machine) and words.heals(narrowed):
                    old, new = specifiers
                    into, lines = "this environment", swapping(recipe, recipe.run, old=old, new=new)
                yield f"These commands, run in {into}, differ only in the component:"
                yield Code(text=scrubbed(lines), language="sh")


def _entry(narrowed: Narrowed) -> dict[str, Any]:
    return {
        **{name: getattr(narrowed, name) for name in ("finding", "verdict", "good", "bad")},
        "culprits": [_culprit(culprit, narrowed) for culprit in narrowed.culprits],
        "open": list(narrowed.open),
        "groups": len(narrowed.groups),
        "hybrids": len(narrowed.hybrids),
        "launches": narrowed.launches,
        "reason": narrowed.reason,
        "sentence": words.headline(narrowed),
        "install": words.install_lines(narrowed),
    }


def _culprit(culprit: Culprit, narrowed: Narrowed) -> dict[str, Any]:
    return {
        "kind": culprit.kind,
        "parts": [[words.group_text(group, narrowed) for group in part] for part in culprit.parts],
        **{name: getattr(culprit, name) for name in ("part_of_it", "share", "share_ci")},
        "proof": [
            {"hybrid": cell.role, "state": cell.result.state, "launches": cell.result.launches}
            for cell in (*culprit.proof, *narrowed.shams)
        ],
    }
