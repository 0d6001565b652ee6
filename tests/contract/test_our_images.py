"""What belongs to the harness on an engine and what does not: nothing of anyone else is ever removed."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import docker as docker_sdk
import pytest
from docker.errors import NotFound

from harness.model import Build
from harness.run.docker import containers
from harness.run.docker.containers import NAME_LABEL, OWNER_LABEL, UNCHECKED_AGE_S, marked, ours
from harness.run.images.our_images import IMAGE_LABEL
from tests.dead import dead_owner
from tests.players.world import BASE, World, image, installed, quiet

pytestmark = pytest.mark.docker

WAITING = ["sleep", "60"]


@pytest.fixture
def dead() -> str:
    """Return the owner that a killed harness of this machine leaves behind."""
    return dead_owner()


@pytest.fixture
def create(client: docker_sdk.DockerClient) -> Iterator[Callable[..., Any]]:
    """Yield a function that creates containers, which are removed after the test."""
    made: list[Any] = []

    def make(reference: str, **fields: Any) -> Any:
        made.append(client.containers.create(reference, WAITING, **fields))
        return made[-1]

    yield make
    for container in made:
        with contextlib.suppress(NotFound):
            container.remove(force=True)


def remove_leftovers(client: docker_sdk.DockerClient, *, now_s: float | None = None) -> None:
    for container_id in ours(client, dead=True, now_s=now_s):
        containers.remove(client, container_id)


def is_there(client: docker_sdk.DockerClient, container: Any) -> bool:
    return bool(client.containers.list(all=True, filters={"id": container.id}))


def test_what_a_killed_harness_left_is_removed(
    docker: World, client: docker_sdk.DockerClient, create: Callable[..., Any], dead: str
) -> None:
    mark = marked("test")
    left = create(BASE, name=mark["name"], labels={**mark["labels"], OWNER_LABEL: dead})
    left.start()
    assert docker.engine.remove_leftovers() >= 1
    assert not is_there(client, left)


def test_a_container_is_removed_whose_making_was_never_confirmed(
    client: docker_sdk.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine made the container, and its connection broke before it answered: the container stayed as long as the
    harness ran.
    """
    really = client.api.create_container
    names: list[str] = []

    def breaking(*arguments: Any, name: str, **options: Any) -> Any:
        names.append(name)
        really(*arguments, name=name, **options)
        raise ConnectionError("the engine is gone")

    monkeypatch.setattr(client.api, "create_container", breaking)
    with pytest.raises(ConnectionError):
        containers.created(client, BASE, ["true"], purpose="test").__enter__()
    assert client.containers.list(all=True, filters={"name": names[0]})
    remove_leftovers(client)
    assert not client.containers.list(all=True, filters={"name": names[0]})


@pytest.mark.index
def test_a_container_of_a_users_own_from_an_overlay_stays(
    docker: World, client: docker_sdk.DockerClient, create: Callable[..., Any]
) -> None:
    """It inherits the labels of the image, and the image has those of the container in which pip ran."""
    prepared = docker.engine.prepare(installed("six==1.16.0"), quiet)
    theirs = create(prepared.reference, name=f"harness-{secrets.token_hex(4)}")
    assert theirs.labels[OWNER_LABEL] == ""
    remove_leftovers(client, now_s=2**33)
    assert is_there(client, theirs)


def test_inherited_labels_of_a_dead_harness_make_nobody_a_leftover(
    client: docker_sdk.DockerClient, create: Callable[..., Any], dead: str
) -> None:
    """For example, someone commits one of our containers."""
    mark = marked("test")
    ours = create(BASE, name=mark["name"], labels={**mark["labels"], OWNER_LABEL: dead})
    committed = ours.commit()
    try:
        theirs = create(committed.id)
        assert theirs.labels[OWNER_LABEL] == dead
        remove_leftovers(client)
        assert (is_there(client, theirs), is_there(client, ours)) == (True, False)
        theirs.remove()
    finally:
        client.images.remove(committed.id)


def test_only_old_and_ended_containers_of_others_are_removed(
    client: docker_sdk.DockerClient, create: Callable[..., Any]
) -> None:
    """Their owner cannot be looked up from here, so a recent container may belong to a running sweep."""
    mark = marked("test")
    other = create(BASE, name=mark["name"], labels={**mark["labels"], OWNER_LABEL: "another-machine:1:1"})
    created_s = client.api.containers(all=True, filters={"id": other.id})[0]["Created"]
    remove_leftovers(client, now_s=created_s + UNCHECKED_AGE_S - 1)
    assert is_there(client, other)
    remove_leftovers(client, now_s=created_s + UNCHECKED_AGE_S + 1)
    assert not is_there(client, other)


# ---------------------------------------------------------------- images


@pytest.fixture
def made(docker: World, client: docker_sdk.DockerClient, tmp_path: Path) -> Iterator[Any]:
    """Return an image that the harness built."""
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nLABEL test={secrets.token_hex(8)}\n")
    prepared = docker.engine.prepare(image(Build(context=tmp_path, args=())), quiet)
    yield client.images.get(prepared.reference)
    with contextlib.suppress(NotFound):
        client.images.remove(prepared.reference, force=True)


def clean(docker: World, client: docker_sdk.DockerClient, made: Any) -> list[str]:
    """Run `clean --images` for this image and everything made from it."""
    label = f"{IMAGE_LABEL}={made.labels[IMAGE_LABEL]}"
    theirs = {entry["Id"] for entry in client.api.images(filters={"label": label})}
    kept = [each for each in docker.engine.kept() if each.reference in theirs]
    return [each.name for each in kept if docker.engine.remove(each, quiet)]


def test_an_image_that_we_made_is_removed_and_no_other(
    docker: World, client: docker_sdk.DockerClient, made: Any
) -> None:
    kept = client.images.get(BASE).id
    assert clean(docker, client, made) == [made.tags[0]]
    assert made.id not in {each.id for each in client.images.list()}
    assert client.images.get(BASE).id == kept


def test_an_image_with_a_users_tag_stays(docker: World, client: docker_sdk.DockerClient, made: Any) -> None:
    made.tag("harness-test/mine", "1")
    assert clean(docker, client, made) == []
    assert client.images.get("harness-test/mine:1").id == made.id


def test_an_image_that_a_user_made_from_ours_stays(docker: World, client: docker_sdk.DockerClient, made: Any) -> None:
    text = f"FROM {made.tags[0]}\nLABEL theirs=1\n"
    theirs, _ = client.images.build(fileobj=BytesIO(text.encode()), tag="harness-test/theirs:1", rm=True)
    try:
        clean(docker, client, made)
        found = client.images.get("harness-test/theirs:1")
        assert found.id == theirs.id
        assert found.labels[IMAGE_LABEL] == made.labels[IMAGE_LABEL]
    finally:
        client.images.remove("harness-test/theirs:1")


def test_images_stay_while_a_harness_is_at_work(
    docker: World, client: docker_sdk.DockerClient, create: Callable[..., Any], made: Any
) -> None:
    """Between two of its trials, nothing uses an image of a sweep."""
    mark = marked("test")
    working = create(BASE, **mark)
    said: list[str] = []
    assert docker.engine.remove_images(said.append) == ()
    assert "another harness is running" in said[0]
    assert client.images.get(made.id).id == made.id
    assert mark["name"] in ours(client, dead=False).values()
    working.remove()
    assert mark["name"] not in ours(client, dead=False).values()


def test_every_container_of_ours_is_marked(docker: World, client: docker_sdk.DockerClient) -> None:
    with docker.engine.launch(docker.launch("quiet")) as session:
        (entry,) = client.api.containers(filters={"label": f"harness.run={docker.run_id}"})
        assert entry["Id"] in ours(client, dead=False), json.dumps(entry["Labels"])
        assert entry["Labels"][NAME_LABEL].startswith("harness-")
        assert session.receive(30.0) is not None
