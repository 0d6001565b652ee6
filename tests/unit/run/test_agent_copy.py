"""The trials of a process engine share one copy of the agent: it must be whole, and nothing may be left of it."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run import owners
from harness.run.process.environments import AgentCopy

AGENT = {"package/__init__.py": b"", "package/deep/part.py": b"X = 1\n"}


def linked(copy: AgentCopy, root: Path) -> Path:
    root.mkdir()
    copy.link_into(root, AGENT)
    return (root / "package").resolve()


def test_trials_share_one_copy_that_goes_with_the_engine(tmp_path: Path) -> None:
    copy = AgentCopy()
    first, second = linked(copy, tmp_path / "a"), linked(copy, tmp_path / "b")

    assert first == second
    assert (tmp_path / "a/package/deep/part.py").read_bytes() == b"X = 1\n"
    copy.remove()
    copy.remove()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_a_copy_that_could_not_be_written_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a full disk, a part of the agent would fail in every launch."""
    copy = AgentCopy()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full_disk)
        with pytest.raises(OSError, match="No space left"):
            linked(copy, tmp_path / "a")

    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert (linked(copy, tmp_path / "b") / "deep/part.py").read_bytes() == b"X = 1\n"


def full_disk(path: Path, content: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def change(copy: Path) -> None:
    (copy / "package/__init__.py").write_bytes(b"raise SystemExit\n")


def close(copy: Path) -> None:
    (copy / "package").chmod(0)


def lose_a_part(copy: Path) -> None:
    (copy / "package/deep/part.py").unlink()


@pytest.mark.parametrize("damage", [shutil.rmtree, change, close, lose_a_part])
def test_a_damaged_copy_is_written_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """A cleaner of temporary files, or a program that empties its home, would end all other launches of a sweep."""
    copy = AgentCopy()
    damage(linked(copy, tmp_path / "a").parent)

    assert (linked(copy, tmp_path / "b") / "deep/part.py").read_bytes() == b"X = 1\n"
    assert (tmp_path / "b/package/__init__.py").read_bytes() == b""
    assert len(list(tmp_path.glob(f"{owners.AGENT_PREFIX}*"))) == 1, "copies pile up"
    copy.remove()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_a_copy_that_cannot_be_removed_costs_no_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is removed at the end of a sweep, before its report is written: an error there lost the report."""
    monkeypatch.setattr(owners, "REMOVAL_S", 0.0)
    monkeypatch.setattr(shutil, "rmtree", read_only)
    copy = AgentCopy()
    kept = linked(copy, tmp_path / "a").parent

    copy.remove()
    assert kept.name.startswith(owners.AGENT_PREFIX)
    assert kept.is_dir()


def read_only(path: Path) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), "relative")
