"""The lease of a process host is a file in a folder that every user of the machine can write to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import InfrastructureError, Interrupted
from harness.run import leases


def linked(path: Path, target: Path) -> None:
    path.symlink_to(target)


def hard_linked(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def dangling(path: Path, target: Path) -> None:
    path.symlink_to(target.with_name("not there"))


def piped(path: Path, target: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("plant", [linked, hard_linked, dangling, piped])
def test_what_another_user_planted_there_is_neither_written_nor_waited_for(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    """A link in /tmp emptied the file to which it led, with the permissions of the sweep's user; a pipe blocked the
    sweep.
    """
    target = tmp_path / "precious"
    target.write_text("kept")
    plant(tmp_path / leases.NAME, target)
    place = re.escape(f"hosts.here: {tmp_path / leases.NAME}: is a link or a pipe, not a lease; remove it, or set")
    lease = leases.held(tmp_path, place="hosts.here", say=pytest.fail, stopped=lambda: False)
    with pytest.raises(InfrastructureError, match=f"^{place}"), lease:
        pytest.fail("it was held")
    assert leases.holder(tmp_path) is None
    assert target.read_text() == "kept"
    assert not (tmp_path / "not there").exists()


def test_a_holder_that_has_not_written_its_name_yet_is_another_process(tmp_path: Path) -> None:
    """It read "this host is in use by ", without a name."""
    with leases.held(tmp_path, place="x", say=pytest.fail, stopped=lambda: False):
        (tmp_path / leases.NAME).write_text("")
        assert leases.holder(tmp_path) == "another process"


def test_who_holds_it_is_told_in_one_line(tmp_path: Path) -> None:
    """Any user may write the holder's name, and a terminal would obey its control sequences."""
    said: list[str] = []
    with leases.held(tmp_path, place="x", say=pytest.fail, stopped=lambda: False):
        (tmp_path / leases.NAME).write_text("\x1b[2Jada\nfine")
        assert leases.holder(tmp_path) == "?[2Jada?fine"
        waits = iter([False, True])
        second = leases.held(tmp_path, place="x", say=said.append, stopped=lambda: next(waits))
        with pytest.raises(Interrupted), second:
            pytest.fail("it was held twice")
    assert said == ["waiting: this host is in use by ?[2Jada?fine"]
    assert leases.holder(tmp_path) is None
