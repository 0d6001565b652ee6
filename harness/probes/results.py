"""Keeps the results of `harness probe` in the directory of the run that they belong to, and reads them for reports."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter

from harness import file_locks
from harness.model import Plan, Probe, ProbeName, Scalar
from harness.probes import tables
from harness.probes.records import Leak, LineTable, OpDrift, Probed, SizeTry
from harness.report.added import Added
from harness.report.blocks import ReportSection
from harness.store import RunDirectory, result_file
from harness.store.json_files import read_extra
from harness.store.trial_json import describe_cell

FILE = "probes.json"


class _ProbedFile(BaseModel):
    """An entry of `probes.json`. The fields in _CELL identify the cell."""

    series: str
    image: str
    host: str
    gpu: str | None
    scenario: str
    params: dict[str, Scalar]
    probe: ProbeName
    steps: int = 0
    settings: dict[str, Any] = {}
    problem: str = ""
    files: list[str] = []
    ops: tuple[OpDrift, ...] = ()
    functions: tuple[LineTable, ...] = ()
    leaks: tuple[Leak, ...] = ()
    errors: dict[str, int] = {}
    tries: tuple[SizeTry, ...] = ()
    largest: int | None = None


_FILE = TypeAdapter(list[_ProbedFile])
_RESULTS = TypeAdapter(Probed)
_FOUND = {"problem", "ops", "functions", "leaks", "errors", "tries"}
"""The fields of Probed that an entry has, too."""
_CELL = ("series", "image", "host", "gpu", "scenario", "params")


def keep_probes(probes: Sequence[Probed], directory: RunDirectory) -> None:
    """Write the files of the newest probe, the last one, into a folder of their own, and the records of all probes into
    `probes.json`. Raises InfrastructureError.
    """
    newest = probes[-1]
    folder = f"{newest.cell.id}-{newest.probe.name}"
    if newest.files:
        directory.folder(folder)
    for name, text in newest.files.items():
        directory.write(f"{folder}/{name}", text)
    directory.write(FILE, json.dumps(list(map(_to_json, probes)), indent=1))
    directory.point_latest()


def _to_json(probed: Probed) -> dict[str, Any]:
    """Return the record of a probe. It names the probe's files; their content is stored separately."""
    return {
        **describe_cell(probed.cell),
        "probe": probed.probe.name, "steps": probed.probe.steps, "settings": dict(probed.probe.settings),
        "files": sorted(probed.files), "largest": probed.largest,
        **_RESULTS.dump_python(probed, mode="json", include=_FOUND),
    }  # fmt: skip


@contextmanager
def added_to_newest_run(probed: Path, *, out: Path, matrix: str) -> Iterator[Path | None]:
    """Add the entries of `probes.json` in the directory `probed` to the newest run of the matrix; a newer entry
    replaces an older one. Yield that run's directory, or None if no run is finished.

    Another probe can add its entries only after the block, so that the reports written last show the entries of both.
    Raises UsageError for a damaged file, InfrastructureError if nothing can be written.
    """
    run = out / matrix / "latest"
    if not (run / result_file.FILE).exists():
        yield None
        return
    run = run.resolve()
    with _alone_in(run.parent):
        written = [*_as_written(run / FILE), *_as_written(probed / FILE)]
        entries = {_key(entry, *_CELL, "probe"): entry for entry in written}
        RunDirectory(run).write(FILE, json.dumps(list(entries.values()), indent=1))
        yield run


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder of the matrix during the block, so that two probes that end at the same time add their results
    one after the other. The lock of the run's own directory serves another purpose.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot lock folders
            file_locks.lock(handle)
        yield
    finally:
        os.close(handle)


def _key(entry: Mapping[str, Any], *names: str) -> str:
    return json.dumps([entry[name] for name in names], sort_keys=True)


def _as_written(path: Path) -> list[dict[str, Any]]:
    """Return the entries with all their fields, including those that only a newer harness knows. Raises UsageError."""

    def checked(content: Any) -> list[dict[str, Any]]:
        _FILE.validate_python(content)
        return cast("list[dict[str, Any]]", content)

    return read_extra(path, checked) if path.exists() else []


def read(run: Path, plan: Plan) -> ProbedCells:
    """Return the results of this plan's cells, in the order of the file. Raises UsageError if that is unreadable."""
    path, cells = run / FILE, {_key(describe_cell(cell), *_CELL): cell for cell in plan.cells}
    results = []
    for entry in read_extra(path, _FILE.validate_python) if path.exists() else ():
        if cell := cells.get(_key(vars(entry), *_CELL)):
            probe = Probe(name=entry.probe, steps=entry.steps, settings=tuple(entry.settings.items()))
            found = {name: getattr(entry, name) for name in _FOUND}
            results.append(Probed(probe=probe, cell=cell, files=dict.fromkeys(entry.files, ""), **found))
    return ProbedCells(results=results)


class ProbedCells(Added):
    """The findings of `harness probe`, for the page and Markdown."""

    name, title = "probes", "Probes"
    about = "Measurements inside the scenarios, from separate launches by `harness probe`; they do not affect verdicts."
    results: Sequence[Probed]

    def sections(self) -> Iterator[ReportSection]:
        return tables.sections(self.results)
