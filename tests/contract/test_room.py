"""What the harness pulled, and what it may remove: on a real engine, with a real registry on loopback."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker as docker_sdk
import pytest

from harness.errors import ImageUnavailable
from harness.model import Prepared
from harness.report.terminal.progress import plain_progress
from harness.run.engine import Kept
from harness.run.images import our_images
from harness.run.images.disk_budget import total_bytes
from harness.run.images.prefetch import HostImages
from tests.players.plans import a_cell
from tests.players.world import World, host, pulled, quiet
from tests.registry.held import anonymous, held

pytestmark = pytest.mark.docker
MIB = 1 << 20
BASE = "harness-test/room:latest"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield `127.0.0.1:PORT`, where engines need no TLS."""
    if shutil.which("docker-registry") is None:
        missing = "no docker-registry on the PATH; tools/registry installs it"
        pytest.fail(missing) if os.environ.get("HARNESS_REQUIRE_DOCKER") == "1" else pytest.skip(missing)
    folder = tmp_path_factory.mktemp("registry")
    with (
        contextlib.closing(docker_sdk.from_env()) as client,
        held(folder, auth=anonymous(folder), client=client) as found,
    ):
        yield found.host


def archive(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Pushed:
    """Repositories in the registry whose images the engine does not have."""

    def __init__(self, client: docker_sdk.DockerClient, registry: str) -> None:
        self.client, self.repository = client, f"{registry}/test/{secrets.token_hex(4)}"
        client.api.import_image_from_data(archive(usr__bin__python3=os.urandom(MIB)), repository=BASE)

    def image(self, tag: str, *, mib: int = 4) -> str:
        """Push an image of this much more than the base; return its reference."""
        reference = f"{self.repository}:{tag}"
        context = archive(Dockerfile=f"FROM {BASE}\nADD data /\n".encode(), data=os.urandom(mib * MIB))
        made, _ = self.client.images.build(
            fileobj=io.BytesIO(context), custom_context=True, tag=reference, rm=True, forcerm=True
        )
        self.client.images.push(self.repository, tag=tag)
        self.client.images.remove(reference)
        assert not [entry for entry in self.client.api.images() if entry["Id"] == made.id]
        return reference

    def remove(self) -> None:
        for entry in self.client.api.images():
            names = [*(entry["RepoTags"] or ()), *(entry["RepoDigests"] or ())]
            if any(name.startswith(self.repository) for name in names):
                self.client.images.remove(entry["Id"], force=True)
        self.client.images.remove(BASE, force=True)


@pytest.fixture
def pushed(client: docker_sdk.DockerClient, registry: str) -> Iterator[Pushed]:
    found = Pushed(client, registry)
    yield found
    found.remove()


def kept(world: World, reference: str) -> Kept | None:
    return next((each for each in world.engine.kept() if each.name == reference), None)


def ids(client: docker_sdk.DockerClient) -> set[str]:
    return {entry["Id"] for entry in client.api.images()}


def test_what_was_pulled_is_known_and_can_be_removed(
    docker: World, client: docker_sdk.DockerClient, pushed: Pushed
) -> None:
    prepared = docker.engine.prepare(pulled(pushed.image("1")), quiet)
    found = kept(docker, f"{pushed.repository}:1")
    assert found is not None
    assert (found.reference, found.made) == (prepared.reference, False)
    assert 4 * MIB <= total_bytes([found]) < 5 * MIB, "the base is not ours and does not count"
    assert docker.engine.holds(prepared)
    assert docker.engine.remove(found, quiet)
    assert prepared.reference not in ids(client)
    assert not docker.engine.holds(prepared)


def test_what_was_there_before_is_never_ours(docker: World, client: docker_sdk.DockerClient, pushed: Pushed) -> None:
    by_hand, new_name = pushed.image("by-hand"), f"{pushed.repository}:again"
    client.images.pull(by_hand)
    docker.engine.prepare(pulled(by_hand), quiet)
    assert kept(docker, by_hand) is None
    client.images.get(by_hand).tag(pushed.repository, "again")
    client.images.push(pushed.repository, tag="again")
    client.images.remove(new_name)
    prepared = docker.engine.prepare(pulled(new_name), quiet)
    assert not [each for each in docker.engine.kept() if each.reference == prepared.reference]


def test_what_somebody_else_named_is_no_longer_ours(
    docker: World, client: docker_sdk.DockerClient, pushed: Pushed
) -> None:
    reference = pushed.image("1")
    prepared = docker.engine.prepare(pulled(reference), quiet)
    found = kept(docker, reference)
    assert found is not None
    client.images.get(reference).tag(f"{pushed.repository}-theirs", "mine")
    assert kept(docker, reference) is None
    assert docker.engine.remove(found, quiet) is False
    assert prepared.reference in ids(client)


def test_what_a_container_uses_stays_whole(docker: World, client: docker_sdk.DockerClient, pushed: Pushed) -> None:
    reference, said = pushed.image("1"), list[str]()
    docker.engine.prepare(pulled(reference), quiet)
    found = kept(docker, reference)
    assert found is not None
    container = client.containers.create(reference, ["true"], name=f"harness-test-{secrets.token_hex(4)}")
    try:
        assert docker.engine.remove(found, said.append) is False
        assert container.name in said[0]
        assert client.images.get(reference).id == found.reference
    finally:
        container.remove()


def test_a_tag_that_was_republished_leaves_both_images_ours(
    docker: World, client: docker_sdk.DockerClient, pushed: Pushed
) -> None:
    """Otherwise the old image would never be removed."""
    first = docker.engine.prepare(pulled(pushed.image("1")), quiet)
    republish(pushed, client)
    second = docker.engine.prepare(pulled(f"{pushed.repository}:1"), quiet)
    assert second.reference != first.reference
    ours = {each.reference: each for each in docker.engine.kept()}
    for each in (first, second):
        assert docker.engine.remove(ours[each.reference], quiet)
        assert not docker.engine.holds(each)


def republish(pushed: Pushed, client: docker_sdk.DockerClient) -> None:
    """Push another image under the tag `1`, without the engine's knowledge."""
    other = pushed.image("other")
    client.images.pull(other)
    before = client.images.get(f"{pushed.repository}:1")
    client.images.get(other).tag(pushed.repository, "1")
    client.images.push(pushed.repository, tag="1")
    client.images.remove(other)
    client.images.remove(f"{pushed.repository}:1")
    before.tag(pushed.repository, "1")


def test_an_image_that_was_removed_is_got_again_by_what_it_is(
    docker: World, client: docker_sdk.DockerClient, pushed: Pushed
) -> None:
    """If a tag is republished in the middle of a run, another image must not come under the same name."""
    image = pulled(pushed.image("1"))
    cell = a_cell(on=host("docker"), image=image)
    with plain_progress(io.StringIO()) as watcher:
        images = HostImages(engine=docker.engine, open_another=lambda: docker.engine, progress=watcher, stopped=bool)
    before = images.get(cell)
    assert isinstance(before, Prepared)
    republish(pushed, client)
    (found,) = [each for each in docker.engine.kept() if each.reference == before.reference]
    assert docker.engine.remove(found, quiet)
    with images.in_use(cell, before) as again:
        assert (again.reference, again.digest) == (before.reference, before.digest)
        assert docker.engine.holds(again)


def test_no_space_says_what_to_do(
    docker: World, client: docker_sdk.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(api: object, *_: object, **__: object) -> Iterator[dict[str, str]]:
        yield {"error": "write /var/lib/docker/tmp/GetImageBlob1: no space left on device"}

    monkeypatch.setattr("docker.api.image.ImageApiMixin.pull", full)
    with pytest.raises(ImageUnavailable, match=r"no space left on device; free some space on that engine: `har"):
        docker.engine.prepare(pulled("registry.invalid/none:1"), quiet)


def test_the_room_of_an_engine_is_that_of_its_folder(docker: World, client: docker_sdk.DockerClient) -> None:
    found = docker.engine.condition(quiet)
    assert found.room is not None
    root = Path(client.info()["DockerRootDir"])
    if client.api.base_url == "http+docker://localhost" and root.is_dir():
        there = shutil.disk_usage(root)
        assert found.room.total_bytes == there.total
        assert abs(found.room.free_bytes - there.free) < 8 << 30
    assert found.api == client.api.api_version
    assert our_images.PULLED not in str(found.leftovers)
