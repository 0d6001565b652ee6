"""Mounted data, on every engine: what a launch sees, what it may not do, and what a bad path is told as."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import InfrastructureError
from harness.masking import WITHHELD
from harness.model import Limits, Mount, Variant
from harness.run.hosts.mounted_data import DataUnavailable
from harness.run.trial.payload import pack
from tests.players.launched import found, ran, scenario_of
from tests.players.world import World

Remaining = Callable[[World], list[str]]
HARD_NAME = "ü:colon, comma"


@pytest.fixture
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    folder = tmp_path / getattr(request, "param", HARD_NAME)
    folder.mkdir()
    (folder / "a").write_text("from the host\n")
    return folder


@pytest.mark.parametrize("data", ["plain", HARD_NAME], indirect=True)
def test_a_launch_sees_the_data_and_nothing_is_copied_or_left(
    world: World, data: Path, environ: dict[str, str], remaining: Remaining
) -> None:
    (data / "sparse").touch()
    os.truncate(data / "sparse", 5 << 30)
    mount = Mount(source=data, at="its data")
    scenario = scenario_of(world, mount, "sh", "-c", "cat 'its data/a'; wc -c < 'its data/sparse' | tr -d ' '")
    seen = found(world, scenario, environ)
    assert seen.identity.endswith("(2 files, 5 GiB)")
    trial = ran(world, scenario, seen)
    assert (trial.end, trial.output.tail) == ("completed", f"from the host\n{5 << 30}\n"), trial.message
    assert trial.fingerprint["mounts"] == {"its data": seen.identity}
    assert sorted(path.name for path in data.iterdir()) == ["a", "sparse"]
    assert remaining(world) == []


def test_data_that_change_between_two_launches_are_noticed(world: World, data: Path, environ: dict[str, str]) -> None:
    scenario = scenario_of(world, Mount(source=data, at="d"), "true")
    seen = found(world, scenario, environ)
    (data / "a").write_text("other\n")
    trial = ran(world, scenario, seen)
    why = f"{data} was changed during the sweep; leave it as it is, and run again: all is measured anew"
    assert (trial.end, trial.message) == ("infrastructure", why)
    assert found(world, scenario, environ) != seen


def test_a_path_that_is_not_on_the_host_is_told_and_not_made(
    world: World, tmp_path: Path, environ: dict[str, str], remaining: Remaining
) -> None:
    gone = tmp_path / "gone"
    scenario = scenario_of(world, Mount(source=gone, at="d"), "true")
    assert world.engine.missing([gone, tmp_path]) == (gone,)
    with pytest.raises(DataUnavailable) as told:
        found(world, scenario, environ)
    assert str(told.value) == f"matrix.yaml:2: hosts.here: {gone} does not exist on this host; see `mounts:` of faults"
    assert not gone.exists()
    assert remaining(world) == []


def test_an_env_file_reaches_the_program_and_no_record(world: World) -> None:
    secret = "the-Secret-0f-the-env-file"
    given = (("HF_TOKEN", secret), ("NCCL_X", secret), ("OVER", "file"))
    command = ("sh", "-c", "echo ${#HF_TOKEN} ${#NCCL_X} $OVER")
    scenario = replace(
        world.launch("quiet").scenario, script=None, command=command, limits=Limits(exit_only=True),
        secrets=given, secret_names=tuple(name for name, _ in given), environment=(("OVER", "matrix"),),
    )  # fmt: skip
    trial = world.run(replace(world.launch("quiet"), scenario=scenario, payload=pack(Variant(scenario=scenario))))
    assert trial.output.tail == f"{len(secret)} {len(secret)} matrix\n", trial.message
    assert secret not in repr(trial)
    assert (trial.facts.environment or {}).get("NCCL_X") == WITHHELD


def test_a_slash_after_the_place_of_a_folder_means_nothing_and_after_that_of_a_file_is_told(
    world: World, data: Path, environ: dict[str, str]
) -> None:
    """`the agent did not start: FileExistsError: …/scenario/data/`"""
    at = "deep/er/"
    scenario = scenario_of(world, Mount(source=data, at=at), "cat", f"{at}a")
    trial = ran(world, scenario, found(world, scenario, environ))
    assert trial.output.tail == "from the host\n", trial.message
    with pytest.raises(DataUnavailable, match=rf"/a is a file, and its place a folder; write at: {at}a$"):
        found(world, scenario_of(world, Mount(source=data / "a", at=at), "true"), environ)


@pytest.mark.docker
def test_a_container_may_not_write_and_has_the_data_at_any_path(
    docker: World, data: Path, environ: dict[str, str]
) -> None:
    words = "cat /mnt/data/a; touch /mnt/data/b 2>&1 | grep -o Read-only"
    scenario = scenario_of(docker, Mount(source=data, at="/mnt/data"), "sh", "-c", words)
    trial = ran(docker, scenario, found(docker, scenario, environ))
    assert trial.output.tail == "from the host\nRead-only\n", trial.message


@pytest.mark.docker
def test_a_file_over_a_folder_of_the_image_is_told(docker: World, data: Path, environ: dict[str, str]) -> None:
    (data.parent / "plain").mkdir()
    (data.parent / "plain/a").touch()
    scenario = scenario_of(docker, Mount(source=data.parent / "plain/a", at="/etc"), "true")
    with pytest.raises(InfrastructureError, match=r"^\S+/a is a file, but the image has a folder at /etc, or"):
        found(docker, scenario, environ)
