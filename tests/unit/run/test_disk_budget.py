"""Which image makes room for another, on an engine double."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ImageUnavailable
from harness.model import Build, Cell, Image, Prepared, Pull
from harness.model.watching import Say, unheard
from harness.report.terminal.progress import PlainProgress
from harness.run.engine import Kept
from harness.run.images.disk_budget import Disk, name_of, total_bytes
from harness.run.images.find_images import digest_of
from harness.run.images.our_images import is_ours, layers_of, mark_of
from harness.run.images.prefetch import HostImages
from tests.players.plans import WHERE, a_cell, host

A, B, C, D = (Image(series="s", version=name, source=Pull(reference=f"x:{name}"), where=WHERE) for name in "ABCD")


class Engine:
    """An engine on which every image is one layer of ten bytes; `digests`: the current ones of the registry."""

    def __init__(self, *others: str) -> None:
        self.there = [*others]
        self.asked: list[str] = []
        self.digests: dict[str, str] = {}

    def kept(self) -> tuple[Kept, ...]:
        return tuple(Kept(reference=each, name=f"x:{each}", made=False, layers={each: 10}) for each in self.there)

    def remove(self, kept: Kept, say: Say) -> bool:
        self.there.remove(kept.reference)
        return True

    def look(self, image: Image, say: Say) -> None:
        return None

    def prepare(self, image: Image, say: Say) -> Prepared:
        self.asked += [image.source.reference] if isinstance(image.source, Pull) else []
        self.there += [image.version] if image.version not in self.there else []
        digest = self.digests.get(image.version, f"sha256:{image.version}")
        return Prepared(image=image, reference=image.version, digest=digest)

    def holds(self, prepared: Prepared) -> bool:
        return prepared.reference in self.there


def disk_of_bytes(limit_bytes: int = 30, **fields: Any) -> Disk:
    return Disk(limit_bytes=limit_bytes, sizes=dict.fromkeys(map(name_of, (A, B, C, D)), 10), **fields)


def get(disk: Disk, engine: Any, *images: Image) -> None:
    for image in images:
        with disk.getting(engine, image, unheard):
            disk.got(engine.prepare(image, unheard))


def test_what_was_used_longest_ago_goes_and_first_what_this_run_never_used() -> None:
    engine, disk = Engine("old"), disk_of_bytes()
    get(disk, engine, A, B, C)
    assert engine.there == ["A", "B", "C"]
    for image in (B, A, C):
        with disk.in_use(image):
            pass
    get(disk, engine, D)
    assert engine.there == ["A", "C", "D"]


def test_what_is_launched_or_made_from_stays() -> None:
    engine, disk = Engine(), disk_of_bytes(20, stay=frozenset({"x:B"}))
    get(disk, engine, A, B)
    with disk.in_use(A):
        get(disk, engine, D)
    assert engine.there == ["A", "B", "D"], "the limit is exceeded rather than a launch failed"


def test_a_build_stays() -> None:
    """A new build would not be the image that was measured."""
    build = replace(A, source=Build(context=Path(), args=()))
    engine, disk = Engine(), disk_of_bytes(20)
    get(disk, engine, build, B, C)
    assert engine.there == ["A", "C"]


def test_ahead_of_time_only_what_fits_beside_all_that_was_used() -> None:
    engine: Any = Engine("old", "older")
    disk = disk_of_bytes()
    get(disk, engine, A)
    assert disk.admits(engine, B)
    get(disk, engine, B, C)
    assert not disk.admits(engine, D)
    assert not disk.admits(engine, replace(D, version="of no known size"))
    assert Disk().admits(engine, D)


def test_without_a_limit_nothing_is_removed() -> None:
    engine = Engine("old")
    get(Disk(), engine, A, B, C, D)
    assert engine.there == ["old", "A", "B", "C", "D"]


def test_shared_layers_count_once() -> None:
    history = [
        {"Created": 3, "CreatedBy": "ADD b", "Size": 5},
        {"Created": 2, "CreatedBy": "ENV x", "Size": 0},
        {"Created": 1, "CreatedBy": "ADD a", "Size": 7},
    ]
    one, other = layers_of(history), layers_of([{"Created": 4, "CreatedBy": "ADD c", "Size": 1}, *history[1:]])
    kept = [Kept(reference=name, name=name, made=True, layers=layers) for name, layers in (("1", one), ("2", other))]
    assert (sum(one.values()), sum(other.values()), total_bytes(kept)) == (12, 8, 13)


# ---------------------------------------------------------------- got again


def images_on(engine: Any, disk: Disk) -> HostImages:
    return HostImages(engine=engine, open_another=lambda: engine, progress=PlainProgress(io.StringIO(), clock=float),
                  stopped=bool, disk=disk)  # fmt: skip


def cell(image: Image) -> Cell:
    return a_cell(on=host("here"), image=image)


def test_an_image_that_made_room_is_got_again_by_its_digest() -> None:
    engine = Engine()
    images = images_on(engine, disk_of_bytes(10))
    first = images.get(cell(A))
    assert isinstance(first, Prepared)
    images.get(cell(B))
    assert engine.there == ["B"]
    with images.in_use(cell(A), first) as again:
        assert (again.reference, again.digest) == (first.reference, first.digest)
    assert engine.asked == ["x:A", "x:B", "x@sha256:A"]


def test_another_image_under_the_same_name_is_refused() -> None:
    engine = Engine()
    images = images_on(engine, disk_of_bytes())
    first = images.get(cell(A))
    assert isinstance(first, Prepared)
    engine.there.clear()
    engine.digests["A"] = "sha256:other"
    with pytest.raises(ImageUnavailable, match="now names another image"), images.in_use(cell(A), first):
        pass


def test_podman_names_the_hub_as_well() -> None:
    """Otherwise nothing that was made or pulled there would ever be removed, and the disk would fill."""
    name = f"harness/build:{'0' * 32}"
    made = {"Labels": {"harness.image": name}, "RepoTags": [f"docker.io/{name}"]}
    pulled = ["docker.io/library/python:3.11", f"docker.io/{mark_of('python:3.11')}"]
    assert is_ours(made)
    assert is_ours({"Labels": None, "RepoTags": pulled})
    assert not is_ours({"Labels": None, "RepoTags": [*pulled, "localhost/mine:1"]})


def test_an_image_that_labels_itself_as_ours_is_not_ours() -> None:
    """`clean --images` removed it, although the user had pulled it."""
    name = "evil/image:1"
    record = {"Labels": {"harness.image": name}, "RepoTags": [name], "RepoDigests": ["evil/image@sha256:ab"]}
    assert not is_ours(record)
    assert digest_of(name, {**record, "Config": record, "Id": "sha256:cd"}) == "sha256:ab"
