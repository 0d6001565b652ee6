"""Results of probes go into the reports of the newest run, and only there."""

from __future__ import annotations

import fcntl
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.model import Probe, RunResult
from harness.probes import printed as probes_output
from harness.probes import tables as probe_tables
from harness.probes.records import Leak, Probed
from harness.probes.results import FILE, added_to_newest_run, read
from tests.players import build

RESULT: RunResult = build.quickstart()
ENTRY = {
    "series": "multidict", "image": "6.3.0", "host": "local", "gpu": None, "scenario": "multidict_pop", "params": {},
    "probe": "optrace", "steps": 0, "settings": {"at": [10, 120]}, "problem": "", "files": ["step-10.trace.json"],
    "ops": [{"op": "rfft", "kind": "", "ms": [0.2, 3.0], "ratio": 15.0, "bytes": 0, "expected_bytes": None}],
}  # fmt: skip


def written(folder: Path, *entries: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(entries))
    return folder


def a_run(out: Path) -> Path:
    run = out / "quickstart" / "20250301T120000Z-1a2b"
    run.mkdir(parents=True)
    (run / "result.json").write_text("{}")
    (run.parent / "latest").symlink_to(run.name)
    return run


def add(out: Path, name: str, *entries: object) -> Path | None:
    """Add what a probe found, in the folder of this name, to the newest run."""
    with added_to_newest_run(written(out / name, *entries), out=out, matrix="quickstart") as run:
        return run


def test_what_was_found_is_read_back_with_its_cell_and_settings(tmp_path: Path) -> None:
    (found,) = read(written(tmp_path, ENTRY), RESULT.plan).results
    assert (found.cell.image.version, found.ops[0].ms) == ("6.3.0", (0.2, 3.0))
    assert dict(found.probe.settings) == {"at": [10, 120]}
    assert list(found.files) == ["step-10.trace.json"]


def test_the_newest_run_gets_it_and_keeps_what_other_probes_found(tmp_path: Path) -> None:
    """Otherwise `harness probe --with lines` after `--with optrace` would remove the op traces from the report."""
    run = a_run(tmp_path)
    lines = ENTRY | {"probe": "lines", "ops": []}
    assert add(tmp_path, "one", ENTRY) == run
    add(tmp_path, "two", lines, ENTRY | {"problem": "again"})
    found = read(run, RESULT.plan).results
    assert [(one.probe.name, one.problem) for one in found] == [("optrace", "again"), ("lines", "")]


def test_what_a_newer_harness_wrote_stays_when_another_probe_is_added(tmp_path: Path) -> None:
    run, newer = a_run(tmp_path), ENTRY | {"probe": "lines", "ops": [], "later": 1}
    written(run, newer)
    add(tmp_path, "one", ENTRY | {"ops": [{**ENTRY["ops"][0], "later": 2}]})  # type: ignore[index]
    first, second = json.loads((run / FILE).read_text())
    assert (first["later"], second["ops"][0]["later"]) == (1, 2)


def test_probes_that_end_at_once_all_get_in(tmp_path: Path) -> None:
    """Each one reads the file and writes it again with its own results: without a lock, the last one removed the
    others.
    """
    run = a_run(tmp_path)
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda n: add(tmp_path, str(n), ENTRY | {"params": {"n": n}}), range(24)))
    assert {entry["params"]["n"] for entry in json.loads((run / FILE).read_text())} == set(range(24))


def test_reports_are_written_before_the_next_probe_adds_its_own(tmp_path: Path) -> None:
    """The slower of two probes wrote a page without the tables of the other, over the page that had both."""
    run = a_run(tmp_path)
    with added_to_newest_run(written(tmp_path / "one", ENTRY), out=tmp_path, matrix="quickstart"):
        other = os.open(run.parent, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(other)
    add(tmp_path, "two", ENTRY | {"probe": "lines"})
    assert len(json.loads((run / FILE).read_text())) == 2


def test_a_run_that_is_not_finished_gets_nothing(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (run / "result.json").unlink()
    assert add(tmp_path, "one", ENTRY) is None
    assert not (run / FILE).exists()


def test_what_was_probed_of_other_cells_is_not_this_run_s(tmp_path: Path) -> None:
    assert read(written(tmp_path, ENTRY | {"image": "0.1"}), RESULT.plan).results == []
    assert read(tmp_path / "nowhere", RESULT.plan).results == []


@pytest.mark.parametrize("text", ["[", "{}", '[{"series": 1}]'])
def test_a_file_that_is_broken_is_named_with_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UsageError, match=r"probes\.json: .*; remove it to continue without it"):
        read(tmp_path, RESULT.plan)


def test_what_a_step_adds_is_never_less_than_nothing(tmp_path: Path) -> None:
    """Valgrind counts a block of Python sometimes under one kind, sometimes under another: a table showed -1 blocks a
    step.
    """
    cell = RESULT.cells[0].cell
    fewer = Leak(kind="PossiblyLost", stack=("a",), bytes=64, blocks=2, bytes_a_step=-32, blocks_a_step=-1)
    more = Leak(kind="DefinitelyLost", stack=("b",), bytes=9 << 20, blocks=9, bytes_a_step=3 << 20, blocks_a_step=1 / 3)
    probed = Probed(probe=Probe(name="valgrind", steps=4), cell=cell, leaks=(fewer, more))
    text = probes_output.render([probed], tmp_path)
    assert ["PossiblyLost", "64", "2", "0"] in [line.split() for line in text.splitlines()]
    assert ["DefinitelyLost", "0.333", "3,145,728"] in [line.split() for line in text.splitlines()]
    rows = [row for section in probe_tables.sections([probed]) for table in section.blocks for row in table.rows]  # type: ignore[union-attr]
    assert ("PossiblyLost", "64", "2", "0") in rows
    assert ("DefinitelyLost", "0.333", "3,145,728", "b") in rows
