"""`harness clean`: what it removes, what it never removes, and what a dry run prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.errors import EngineUnreachable, UsageError
from harness.flows import clean as clean_flow
from harness.flows.clean import Cleaned, clean, hosts_of
from harness.model import Host, Image
from harness.run.engine import Kept
from harness.store import RunDirectory

NOW = datetime(2024, 6, 1, tzinfo=timezone.utc)
MONTH = timedelta(days=30)


def made(out: Path, *days_ago: int, matrix: str = "m") -> list[Path]:
    """Make directories of runs that ended, each with a trial."""
    paths = []
    for days in days_ago:
        directory = RunDirectory.create(out=out, matrix=matrix, now=NOW - timedelta(days=days))
        (directory.path / "trials" / "x-1.json").write_bytes(b"x" * (1 << 20))
        paths.append(directory.path)
    return paths


def cleaned(out: Path, *, matrix: str | None = None, dry_run: bool = False) -> list[str]:
    return list(clean_flow.clean_runs(out, matrix=matrix, older_than=MONTH, dry_run=dry_run, now=NOW))


def test_old_runs_go_and_young_ones_stay(tmp_path: Path) -> None:
    oldest, old, young = made(tmp_path, 90, 31, 29)
    assert cleaned(tmp_path) == [f"removed {oldest} (1 MiB)", f"removed {old} (1 MiB)"]
    assert [path.exists() for path in (oldest, old, young)] == [False, False, True]
    assert sorted(path.name for path in young.parent.iterdir()) == [young.name]


def test_the_newest_of_a_matrix_stays_however_old(tmp_path: Path) -> None:
    older, newest = made(tmp_path, 200, 100)
    assert f"left alone: {newest} (1 MiB): the newest of its matrix" in cleaned(tmp_path)
    assert (older.exists(), newest.exists()) == (False, True)


def test_a_run_that_goes_on_stays(tmp_path: Path) -> None:
    going_on = RunDirectory.create(out=tmp_path, matrix="m", now=NOW - timedelta(days=90))
    made(tmp_path, 1)
    assert cleaned(tmp_path) == [f"left alone: {going_on.path} (0 B): in use"]
    path = going_on.path
    del going_on
    assert cleaned(tmp_path) == [f"removed {path} (0 B)"]


def test_what_later_runs_took_over_stays_with_them(tmp_path: Path) -> None:
    old, young = made(tmp_path, 90, 1)
    shared = young / "trials" / "y-1.json"
    shared.hardlink_to(old / "trials" / "x-1.json")
    assert cleaned(tmp_path) == [f"removed {old} (0 B)"]
    assert shared.stat().st_size == 1 << 20


def test_only_runs_are_removed_and_only_those_that_are_meant(tmp_path: Path) -> None:
    (theirs,) = made(tmp_path, 90, matrix="other")
    made(tmp_path, 1, matrix="other")
    old, _ = made(tmp_path, 90, 1)
    notes = tmp_path / "m" / "20200101T000000Z-notes"
    (notes / "trials").mkdir(parents=True)
    empty = tmp_path / "m" / "20200101T000000Z-abcd"
    empty.mkdir()
    never = tmp_path / "m" / "20209999T000000Z-abcd"
    (never / "trials").mkdir(parents=True)
    link = tmp_path / "m" / "20200101T000000Z-beef"
    link.symlink_to(theirs)
    assert cleaned(tmp_path, matrix="m", dry_run=True) == [f"would remove {old} (1 MiB)"]
    assert old.exists()
    cleaned(tmp_path, matrix="m")
    assert not old.exists()
    assert all(path.exists() for path in (notes, empty, never, link, theirs))


def test_what_a_killed_clean_left_is_removed(tmp_path: Path) -> None:
    made(tmp_path, 1)
    half = tmp_path / "m" / ".removed-20200101T000000Z-abcd"
    half.mkdir()
    assert cleaned(tmp_path, dry_run=True) == []
    assert half.exists()
    cleaned(tmp_path)
    assert not half.exists()


@pytest.mark.parametrize(("text", "hours"), [("12h", 12), ("30d", 720), ("8w", 1344)])
def test_ages(text: str, hours: int) -> None:
    assert clean_flow.age(text) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "30 d", "999999w"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(ValueError, match="write 12h, 30d or 8w"):
        clean_flow.age(text)


# ---------------------------------------------------------------- hosts


class Planted:
    """An engine with a leftover and two images, one of which is in use."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.close = lambda: None
        self.left, self.images = ["harness-1", "harness-lease"], ["repo:1", "repo:used"]

    def leftovers(self) -> tuple[str, ...]:
        return tuple(self.left)

    def remove_leftovers(self) -> int:
        self.left.clear()
        return 2

    def cpu(self, images: Sequence[Image], say: Callable[[str], None]) -> str | None:
        return None

    def kept(self) -> tuple[Kept, ...]:
        return tuple(Kept(reference=name, name=name, made=False, layers={}) for name in self.images)

    def remove_images(self, say: Callable[[str], None]) -> tuple[str, ...]:
        self.images.remove("repo:1")
        return ("repo:1",)


def on(engine: Planted, **options: Any) -> list[Cleaned]:
    def open_engine(host: Host, **_: Any) -> Any:
        if host.engine == "docker":
            raise EngineUnreachable("no Docker here")
        return engine

    asked = {"images": True, "dry_run": False, **options}
    return list(clean(hosts_of(None, {})[1], environ={}, say=print, open_engine=open_engine, **asked))


def test_one_host_that_is_away_keeps_no_other_from_being_cleaned() -> None:
    engine = Planted()
    away, here = on(engine)
    assert str(away) == "docker: not cleaned: no Docker here"
    assert str(here).splitlines() == [
        "process: removed 2 leftovers of killed runs, 1 image", "  harness-1", "  harness-lease", "  repo:1",
    ]  # fmt: skip
    assert (engine.left, engine.images) == ([], ["repo:used"])


@pytest.mark.parametrize(
    ("host", "images", "names"),
    [
        ('{engine: ["ssh://a", "ssh://b"]}', False, ["farm, a", "farm, b"]),
        ("{engine: slurm, nodes: 3, container: docker}", True, ["farm, n1", "farm, n2", "farm, n3"]),
        ("{engine: slurm, nodes: 3, container: docker}", False, ["farm, n1"]),
        ("{engine: slurm, nodes: 3, container: enroot}", True, ["farm, n1"]),
    ],
)
def test_all_machines_of_a_pool_are_cleaned(host: str, images: bool, names: list[str], tmp_path: Path) -> None:
    """A node is requested only if images are on the nodes alone, and all nodes together: otherwise each would be the
    first one.
    """
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(
        "version: 1\nseries: {s: {images: {a: b}}}\nscenarios: {x: {command: [a]}}\n"
        f"hosts: {{farm: {host}}}\n"
    )
    there: list[Planted] = []

    def open_engine(host: Host, **_: Any) -> Any:
        there.append(Planted())
        there[-1].facts = {"name": f"n{len(there)}"}
        there[-1].close = there.clear
        return there[-1]

    found = clean(hosts_of(matrix, {})[1], images=images, dry_run=False, environ={}, say=print, open_engine=open_engine)
    assert [each.host for each in found] == names
    assert not there


def test_an_image_that_lost_its_name_and_stayed_is_not_told_as_removed() -> None:
    """A Docker Engine on a full disk does this: "left alone: no space left on device", and yet listed as removed."""

    class Full(Planted):
        def remove_images(self, say: Callable[[str], None]) -> tuple[str, ...]:
            self.images.clear()
            return ()

    assert str(on(Full())[1]).startswith("process: removed 2 leftovers of killed runs, 0 images\n")
    assert "repo" not in str(on(Full())[1])


def test_a_dry_run_names_everything_and_removes_nothing() -> None:
    engine = Planted()
    text = str(on(engine, dry_run=True)[1])
    assert text.splitlines() == [
        "process: would remove 2 leftovers of killed runs, 2 images",
        "  harness-1", "  harness-lease", "  repo:1", "  repo:used",
    ]  # fmt: skip
    assert len(engine.left) == len(engine.images) == 2


def test_where_nothing_is_left_it_says_just_that() -> None:
    """It printed "removed 0 left behind by killed runs, 0 images"."""
    engine = Planted()
    on(engine)
    engine.images.clear()
    assert str(on(engine, dry_run=True)[1]) == "process: nothing to remove"
    assert str(on(engine, images=False)[1]) == "process: nothing to remove"


def test_images_stay_unless_they_are_meant() -> None:
    engine = Planted()
    kept = "2 images kept (`--images` removes those not in use)"
    assert str(on(engine, images=False)[1]).startswith(f"process: removed 2 leftovers of killed runs; {kept}\n")
    assert str(on(engine, images=False)[1]) == f"process: nothing to remove; {kept}"
    assert len(engine.images) == 2


def test_a_wrong_folder_is_told_before_anything_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: Any, **__: Any) -> Any:
        raise AssertionError("a host was cleaned")

    monkeypatch.setattr(clean_flow, "clean", touched)
    done = CliRunner().invoke(cli, ["clean", "--runs", "30d", "--out", str(tmp_path / "none")])
    assert isinstance(done.exception, UsageError)
    assert "no such folder" in str(done.exception)


def test_a_matrix_s_hosts_are_known_while_its_registry_is_away(tmp_path: Path) -> None:
    """`clean` removes what a sweep left, which needs no tags; it waited for five attempts to ask for them."""
    matrix = tmp_path / "nightly.yaml"
    matrix.write_text(
        'version: 1\nseries: {s: {repository: "127.0.0.1:9/app", tags: {match: "v.*"}}}\n'
        "hosts: {here: {engine: process}}\nscenarios: {one: {command: [a]}}\n"
    )
    name, hosts = hosts_of(matrix, {})
    assert (name, [host.name for host in hosts]) == ("nightly", ["here"])
