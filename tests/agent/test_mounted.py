"""Mounted data in a trial, on every Python that the agent supports."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.agent import mounted
from tests.agent.driver import MARKER, pack


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data ü"
    (folder / "inner").mkdir(parents=True)
    (folder / "a").write_text("one")
    (folder / "inner" / "b").write_text("two")
    (folder / "link").symlink_to("inner/b")
    return folder


def described(path: Path, **mount: Any) -> dict[str, Any]:
    return mounted.described({"at": str(path), "from": str(path), **mount})


def test_data_that_did_not_change_are_the_same_and_any_change_shows(data: Path) -> None:
    before = described(data)
    assert (before["kind"], before["entries"], before["bytes"]) == ("folder", 4, 6)
    assert described(data) == before
    seen = {before["files"]}
    os.utime(data / "a", ns=(1, 1))
    seen.add(described(data)["files"])
    (data / "inner" / "b").rename(data / "inner" / "c")
    seen.add(described(data)["files"])
    os.mkfifo(data / "pipe")  # which is never opened
    seen.add(described(data)["files"])
    assert len(seen) == 4
    assert described(data, identity="name")["files"] == described(data / "a", identity="name")["files"]


def test_data_may_be_in_any_number_of_folders(data: Path) -> None:
    """A traceback said nothing about the version, nor about the data."""
    try:
        subprocess.run(["sh", "-c", "for i in $(seq 1100); do mkdir d; cd -P d; done"], cwd=data, check=True)
        assert described(data)["entries"] == 1104
    finally:
        subprocess.run(["rm", "-rf", data / "d"], check=True)  # Python's own removal is recursive


def test_contents_are_hashed_once_as_long_as_no_file_changed(data: Path) -> None:
    first = described(data, identity="content")
    os.utime(data / "a", ns=(1, 1))
    touched = described(data, identity="content")
    assert (touched["content"], touched["files"] != first["files"]) == (first["content"], True)
    kept = described(data, identity="content", known=touched["inodes"], content="kept")
    assert kept["content"] == "kept"
    (data / "a").write_text("two")
    assert described(data, identity="content", known=touched["inodes"], content="kept")["content"] not in (
        "kept",
        first["content"],
    )


@pytest.mark.parametrize("target", ["/etc", "../..", "inner/../../.."])
def test_a_link_that_leads_out_is_told(data: Path, target: str) -> None:
    """In a container it would lead nowhere, and the identity would not cover what it leads to."""
    (data / "inner" / "out").symlink_to(target)
    problem = described(data)["problem"]
    assert problem == f"inner/out is a link out of it, to {target}; mount that instead, or write identity: name"
    assert "problem" not in described(data, identity="name")


def test_what_cannot_be_data_is_told(data: Path) -> None:
    os.mkfifo(data / "pipe")
    assert described(data / "pipe") == {"problem": "is a FIFO; a mount is a file or a folder"}
    assert described(data / "gone")["problem"].startswith(".: No such file or directory (user ")


def test_a_walk_is_bounded(data: Path) -> None:
    told = mounted.described({"at": str(data), "from": str(data)}, 3)
    assert told == {"problem": "has more than 3 files; mount a part of it, or write identity: name"}


@pytest.mark.smoke
def test_a_survey_describes_the_mounts_and_starts_nothing(python: str, data: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    mounts = [{"at": "d", "from": str(data)}, {"at": str(data / "a"), "from": str(data / "a"), "identity": "content"}]
    pack(root, "raise SystemExit('started')", mounts=mounts, survey=True)
    done = subprocess.run(
        [python, "-B", str(root / "start.py")], stdin=subprocess.PIPE, capture_output=True, check=True
    )
    (line,) = [line for line in done.stdout.decode().splitlines() if line.startswith(MARKER)]
    told = json.loads(line[len(MARKER) :])
    assert [each["at"] for each in told["mounts"]] == ["d", str(data / "a")]
    assert told["mounts"][0]["files"] == described(data)["files"]
    assert told["mounts"][1]["content"] == described(data / "a", identity="content")["content"]
    assert (root / "scenario" / "d").resolve() == data
