"""Two sweeps of different engines on one machine: each would blame its versions for the other's load."""

from __future__ import annotations

import platform
from pathlib import Path

from harness.run.leases import announced

HERE = {"name": platform.node()}


def test_sweeps_of_the_other_kind_know_of_each_other(tmp_path: Path) -> None:
    notes: list[str] = []
    with (
        announced("box", HERE, is_process=False, note=notes.append, folder=tmp_path),
        announced("here", {}, is_process=True, note=notes.append, folder=tmp_path),
        announced("box", HERE, is_process=False, note=notes.append, folder=tmp_path),
    ):
        assert [note.split(":")[0] for note in notes] == ["here", "box"]
        assert "process trials" in notes[1]
    with announced("here", {}, is_process=True, note=notes.append, folder=tmp_path):
        assert len(notes) == 2


def test_engines_of_other_machines_and_sweeps_of_one_kind_are_no_neighbours(tmp_path: Path) -> None:
    notes: list[str] = []
    with (
        announced("far", {"name": "elsewhere"}, is_process=False, note=notes.append, folder=tmp_path),
        announced("here", {}, is_process=True, note=notes.append, folder=tmp_path),
        announced("here", {}, is_process=True, note=notes.append, folder=tmp_path),
    ):
        assert notes == []


def test_a_folder_that_takes_no_file_holds_up_no_sweep(tmp_path: Path) -> None:
    with announced("here", {}, is_process=True, note=lambda text: None, folder=tmp_path / "absent"):
        pass
