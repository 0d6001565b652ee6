"""Keeps what `harness probe` found beside the run that it belongs to, and reads it back for reports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter

from harness import file_locks
from harness.model import Cell, Leak, LineTable, OpDrift, Plan, Probe, Probed, ProbeName, Scalar, SizeTry
from harness.store import RunDirectory, result_file
from harness.store.json_files import read_json

FILE = "probes.json"
Entry = TypeVar("Entry")


class _ProbedFile(BaseModel):
    """An entry of `probes.json`. The first of it say which probe of which cell it is."""

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


_FILE = TypeAdapter(list[_ProbedFile])
_PLACE = ("series", "image", "host", "gpu", "scenario", "params", "probe")


def keep(found: Sequence[Probed], directory: RunDirectory) -> None:
    """Write the newest probe's files into a folder of its own, and all records."""
    probed = found[-1]
    cell = Cell(image=probed.image, lane=probed.lane, variant=probed.variant)
    folder = f"{cell.id}-{probed.probe.name}"
    if probed.files:
        directory.folder(folder)
    for name, text in probed.files.items():
        directory.write(f"{folder}/{name}", text)
    directory.write(FILE, json.dumps([_to_json(each) for each in found], indent=1))
    directory.point_latest()


def _to_json(probed: Probed) -> dict[str, Any]:
    """Return the record without the files' content, which lies beside it."""
    return {
        "series": probed.image.series, "image": probed.image.version, "host": probed.lane.host.name,
        "gpu": probed.lane.gpu, "scenario": probed.variant.scenario.name, "params": dict(probed.variant.params),
        "probe": probed.probe.name, "steps": probed.probe.steps, "settings": dict(probed.probe.settings),
        "problem": probed.problem, "files": sorted(probed.files),
        "ops": [asdict(each) for each in probed.ops],
        "functions": [asdict(each) for each in probed.functions],
        "leaks": [asdict(each) for each in probed.leaks], "errors": dict(probed.errors),
        "tries": [asdict(each) for each in probed.tries], "largest": probed.largest,
    }  # fmt: skip


@contextmanager
def added_to_newest_run(found: Path, *, out: Path, matrix: str) -> Iterator[Path | None]:
    """Put the `probes.json` of the directory `found` beside what the newest run of the matrix has already; what was
    found anew takes the place of the old. Gives that run, or None if there is none that is finished. Another probe adds
    what it found only after the end of the context: its reports, written later, have both.
    """
    run = out / matrix / "latest"
    if not (run / result_file.FILE).exists():
        yield None
        return
    run = run.resolve()
    with _alone_in(run.parent):
        entries = {_place(entry): entry for path in (run / FILE, found / FILE) for entry in _raw(path)}
        RunDirectory(run).write(FILE, json.dumps(list(entries.values()), indent=1))
        yield run


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold a lock of the folder, so that two probes that end at once add their results in turn. The run itself has
    another lock.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems lock no folders
            file_locks.lock(handle)
        yield
    finally:
        os.close(handle)


def _raw(path: Path) -> list[Mapping[str, Any]]:
    def validated(raw: Any) -> list[Mapping[str, Any]]:
        _FILE.validate_python(raw)
        return list(raw)

    return _read(path, validated)


def _place(entry: Mapping[str, Any]) -> str:
    return json.dumps([entry[name] for name in _PLACE])


def read_probed(run: Path, plan: Plan) -> tuple[Probed, ...]:
    """Return what was found in the cells of this plan, in the order in which it was; () if nothing was. Raises
    UsageError.
    """
    return tuple(_probed(read_entries(run / FILE), plan))


def read_entries(path: Path) -> list[_ProbedFile]:
    """Return the entries of a `probes.json`, none if it is not there. Raises UsageError."""
    return _read(path, _FILE.validate_python)


def _read(path: Path, validate: Callable[[Any], list[Entry]]) -> list[Entry]:
    if not path.exists():
        return []
    return read_json(path, validate, absent="remove it to go without", wrong="remove it to go without")


def _probed(entries: list[_ProbedFile], plan: Plan) -> Iterator[Probed]:
    cells = {
        (cell.image.series, cell.image.version, cell.lane.host.name, cell.lane.gpu,
         cell.variant.scenario.name, json.dumps(dict(cell.variant.params))): cell
        for cell in plan.cells
    }  # fmt: skip
    for one in entries:
        cell = cells.get((one.series, one.image, one.host, one.gpu, one.scenario, json.dumps(one.params)))
        if cell is not None:
            yield Probed(
                probe=Probe(name=one.probe, steps=one.steps, settings=tuple(one.settings.items())),
                image=cell.image,
                lane=cell.lane,
                variant=cell.variant,
                problem=one.problem,
                ops=one.ops,
                functions=one.functions,
                leaks=one.leaks,
                errors=one.errors,
                tries=one.tries,
                files=dict.fromkeys(one.files, ""),
            )
