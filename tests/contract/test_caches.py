"""Caches, on every engine that keeps them: what a launch finds in one, who sees what it writes, and what is left."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import docker as docker_sdk
import pytest

from harness.agent import caches
from harness.errors import InfrastructureError
from harness.model import Cache, CellRun, Limits, Prepared, Trial, Variant
from harness.run.hosts.warm_caches import HostCaches
from harness.run.trial.payload import pack
from tests.players.plans import a_cell
from tests.players.world import ROOT, World, host, pulled, quiet

Built = Callable[[str], str]
FILL = "mkdir c/d; echo one > c/d/f; ln c/d/f c/hard; ln -s d/f c/soft; touch -d @99 c/d/f; chmod 640 c/d/f; mkfifo c/p"
LIST = "cd c && find . | sort | tr '\\n' ' '"


def ran(
    world: World, cache: Cache, words: str, *, prepared: Prepared | None = None, kept: str = "", fills: bool = False
) -> Trial:
    launch = world.launch("quiet", prepared=prepared)
    scenario = replace(
        launch.scenario, script=None, command=("sh", "-c", words), limits=Limits(exit_only=True), mounts=(cache,)
    )
    caches = {cache.name: kept} if kept else {}
    payload = pack(Variant(scenario=scenario))
    return world.run(replace(launch, scenario=scenario, payload=payload, caches=caches, fills=fills))


@contextmanager
def made(world: World) -> Iterator[str]:
    kept = world.engine.make_cache()
    try:
        yield kept
    finally:
        world.engine.remove_cache(kept)


def volumes(world: World) -> set[str]:
    if world.kind != "docker":
        return set()
    client = docker_sdk.from_env()
    try:
        return {volume.name for volume in client.volumes.list()}
    finally:
        client.close()


KEEPING = ["process", pytest.param("docker", marks=pytest.mark.docker)]


@pytest.fixture(params=[*KEEPING, pytest.param("slurm", marks=pytest.mark.slurm)])
def keeping(request: pytest.FixtureRequest) -> World:
    world: World = request.getfixturevalue(request.param)
    return world


@pytest.mark.parametrize(
    ("keeping", "at"),
    [
        ("process", "c"),
        ("process", "~/cache"),
        ("process", "deep/er/c"),
        pytest.param("docker", "~/cache", marks=pytest.mark.docker),  # whose home is another one
        pytest.param("slurm", "deep/er/c", marks=pytest.mark.slurm),
    ],
    indirect=["keeping"],
)
def test_each_launch_has_its_own_copy_of_what_one_launch_left(keeping: World, at: str) -> None:
    """A version found what another version had compiled."""
    cache = Cache(name="kernels", at=at)
    at = at.replace("~", "$HOME")
    before, link = volumes(keeping), "" if at == "c" else f"ln -s {at} c; "
    with made(keeping) as kept:
        filled = ran(keeping, cache, f"{link}{LIST}; cd ..; {FILL}", kept=kept, fills=True)
        assert (filled.end, filled.output.tail) == ("completed", ". "), filled.message
        assert filled.fingerprint["caches"] == {"kernels": "cold"}
        words = f"{link}({LIST}; stat -c '%a %Y %h' d/f; cat soft; echo mine > d/f; echo mine > new)"
        for _ in range(2):
            copy = ran(keeping, cache, words, kept=kept)
            assert copy.output.tail == ". ./d ./d/f ./hard ./soft 640 99 2\none\n", copy.message
            assert copy.has_warm_cache
        cold = ran(keeping, replace(cache, start="cold"), f"{link}{LIST}; touch x")
        assert (cold.output.tail, cold.has_warm_cache) == (". ", False), cold.message
    assert keeping.engine.leftovers() == ()
    assert volumes(keeping) == before


def test_a_cache_may_be_deep(keeping: World) -> None:
    """Folders in folders, as some compilers make them, ended the launch with RecursionError, and so did their
    removal."""
    cache, deep = Cache(name="kernels", at="c"), "c/$(printf 'd/%.0s' $(seq 1100))"
    with made(keeping) as kept:
        filled = ran(keeping, cache, f"mkdir -p {deep} && touch -d @99 {deep}", kept=kept, fills=True)
        assert filled.end == "completed", filled.message
        copy = ran(keeping, cache, f"stat -c %Y {deep}", kept=kept)
        assert (copy.end, copy.output.tail) == ("completed", "99\n"), copy.message
    assert keeping.engine.leftovers() == ()


def test_a_cache_of_read_only_folders_is_removed(keeping: World) -> None:
    """Go's module cache stayed on a node for ever: `rm -rf` of an ordinary user removes nothing from such folders."""
    cache = Cache(name="kernels", at="c")
    with made(keeping) as kept:
        filled = ran(keeping, cache, "mkdir -p c/a/b; touch c/a/b/f; chmod 555 c/a/b c/a", kept=kept, fills=True)
        assert filled.end == "completed", filled.message
    assert not keeping.engine.has_cache(kept)
    assert not Path(kept).exists()


def test_a_cache_takes_the_place_of_a_deep_folder_of_the_scenario(tmp_path: Path) -> None:
    place = tmp_path / "scenario" / "c"
    place.mkdir(parents=True)
    (place / "soft").symlink_to("/etc")
    subprocess.run(["sh", "-c", "mkdir -p $0/$(printf 'd/%.0s' $(seq 1100))", place], check=True)
    told = {"at": "c", "own": str(tmp_path), "path": str(tmp_path / "cache"), "from": None}
    assert caches.prepared({"caches": [told]}, str(tmp_path)) == ""
    assert place.readlink() == tmp_path / "cache"
    assert Path("/etc/passwd").exists()


def test_a_cache_that_cannot_be_made_says_nothing_about_the_version(keeping: World) -> None:
    cache = Cache(name="kernels", at="job.json/x")
    trial = ran(keeping, replace(cache, at="../job.json/x"), "true")
    assert trial.end == "infrastructure"
    assert trial.message.startswith("its cache at ../job.json/x cannot be made: ")


def test_a_cache_never_replaces_a_folder_of_the_user(process: World, tmp_path: Path) -> None:
    """A scenario that set HOME to the user's own lost the user the models in it."""
    (own := tmp_path / "hub/model").mkdir(parents=True)
    launch = process.launch("quiet", environment=(("HOME", str(tmp_path)),), mounts=(Cache(name="hub", at="~/hub"),))
    with pytest.raises(InfrastructureError, match="a cache in ~ needs the launch's own HOME; leave HOME out"):
        process.run(launch)
    (root := tmp_path / "trial").mkdir()
    (root / "data").symlink_to(tmp_path)
    told = {"at": "../data/hub", "own": str(root), "path": str(root / "cache"), "from": None}
    assert "it would be outside of the launch's own folder" in caches.prepared({"caches": [told]}, str(root))
    assert own.is_dir()


def test_a_full_disk_says_nothing_about_the_version_that_fills_its_cache(keeping: World) -> None:
    scenario = replace(keeping.launch("quiet").scenario, mounts=(Cache(name="kernels", at="c"),))
    cell, before = replace(a_cell(on=host(keeping.kind)), variant=Variant(scenario=scenario)), volumes(keeping)
    full = Trial(cell_id=cell.id, number=1, key="", end="crash", message="OSError: [Errno 28] No space left on device")
    filled, failed = HostCaches().of(CellRun(cell=cell, key="key"), keeping.engine, lambda made: full)
    assert failed is not None
    assert (filled, failed.end) == ({}, "infrastructure")
    assert failed.message == (
        "OSError: [Errno 28] No space left on device (in the launch that fills its warm cache, which is cold); free "
        "some space on this host, or give it a larger `shm_size` if that was full"
    )
    assert volumes(keeping) == before


def test_rows_have_their_own_caches_and_versions_of_one_image_fill_them_once(keeping: World) -> None:
    """A row that ended removed the cache of another scenario with the same command."""
    given, before = keeping.launch("quiet").scenario, volumes(keeping)
    scenarios = [replace(given, name=name, mounts=(Cache(name="kernels", at="c"),)) for name in ("a", "b")]
    cells = [replace(a_cell(on=host(keeping.kind)), variant=Variant(scenario=scenario)) for scenario in scenarios]
    ended, rest, fills, kept = CellRun(cell=cells[0], key="k"), CellRun(cell=cells[1], key="k"), [], HostCaches()

    def fill(made: Mapping[str, str]) -> Trial:
        time.sleep(0.2)
        fills.append(made)
        return Trial(cell_id="", number=1, key="k", end="completed")

    with ThreadPoolExecutor() as pool:
        found = [made for made, _ in pool.map(lambda run: kept.of(run, keeping.engine, fill), (ended, rest, ended))]
    assert len(fills) == 2
    assert found[0] == found[2] != found[1]
    kept.forget([ended], keeping.engine)
    assert not kept.lacks(rest, keeping.engine)
    keeping.engine.remove_cache(found[1]["kernels"])
    assert kept.lacks(rest, keeping.engine), "the launch would begin with an empty cache, or not at all"
    assert kept.of(rest, keeping.engine, fill)[0] != found[1]
    assert len(fills) == 3
    kept.close(keeping.engine)
    assert volumes(keeping) == before


HOLDER = """
import os, sys, time
from tests.players.world import World
print(World.open(sys.argv[1], os.environ).engine.make_cache(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("name", KEEPING)  # on Slurm, the next run on the node finds it (tests/slurm)
def test_the_cache_of_a_killed_run_is_found_and_removed_and_that_of_a_living_one_stays(
    request: pytest.FixtureRequest, name: str
) -> None:
    keeping: World = request.getfixturevalue(name)
    command = [sys.executable, "-c", HOLDER, keeping.kind]
    with (
        made(keeping) as own,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=keeping.environ, cwd=ROOT) as other,
        ExitStack() as ends,
    ):
        ends.callback(other.kill)  # else a failed assertion would wait for its end
        assert other.stdout is not None
        kept = other.stdout.readline().strip()
        assert keeping.engine.leftovers() == ()
        other.kill()
        other.wait()
        (left,) = keeping.engine.leftovers()
        assert kept.endswith(left)
        assert keeping.engine.remove_leftovers() == 1
        assert keeping.engine.leftovers() == ()
        assert ran(keeping, Cache(name="kernels", at="c"), LIST, kept=own).output.tail == ". "


@pytest.mark.docker
@pytest.mark.parametrize("user", ["root", "1234"])
def test_a_container_has_its_cache_at_any_path_whatever_the_image_has_there(
    docker: World, built: Built, user: str
) -> None:
    image = built(f"RUN mkdir -p /opt/cache && touch /opt/cache/of-the-image\nUSER {user}")
    prepared = docker.engine.prepare(pulled(image), quiet)
    cache, before = Cache(name="kernels", at="/opt/cache"), volumes(docker)
    with made(docker) as kept:
        filled = ran(docker, cache, "ls /opt/cache; echo one > /opt/cache/f", prepared=prepared, kept=kept, fills=True)
        assert (filled.end, filled.output.tail) == ("completed", ""), json.dumps(filled.message)
        copy = ran(docker, cache, "cat /opt/cache/f; echo two > /opt/cache/f", prepared=prepared, kept=kept)
        assert (copy.end, copy.output.tail) == ("completed", "one\n"), copy.message
    assert volumes(docker) == before
