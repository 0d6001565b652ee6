"""A registry's answers as records, and the limits on what it can make us do."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from harness.registry import registry_client
from harness.registry.bounded_http import RegistryDenied, RegistryTrouble
from harness.registry.registry_client import Registry
from tests.players.servers import Reply, Request, Server, World

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def as_json(value: object, *, kind: str = "application/json", **headers: str) -> Reply:
    return Reply(headers={"Content-Type": kind, **headers}, body=json.dumps(value).encode())


def digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def serve(server: Server, replies: dict[str, Reply]) -> None:
    server.answer = lambda request: replies.get(request.path, Reply(status=404))


def an_image(*sizes: int, **config: Any) -> dict[str, Reply]:
    """Return the replies for an image with these layers: by digest, and as tag `one`."""
    blob = json.dumps(config).encode()
    layers = [{"digest": digest_of(b"%d" % size), "size": size} for size in sizes]
    manifest = as_json({"config": {"digest": digest_of(blob), "size": len(blob)}, "layers": layers}, kind=MANIFEST)
    return {
        f"/v2/team/app/blobs/{digest_of(blob)}": Reply(body=blob),
        f"/v2/team/app/manifests/{digest_of(manifest.body)}": manifest,
        "/v2/team/app/manifests/one": manifest,
    }


# ---------------------------------------------------------------- tags


def test_six_hundred_tags_in_pages(server: Server, world: World) -> None:
    """Pages are followed through relative and absolute links; the host in a link is ignored."""
    tags = [f"20.{number}" for number in range(600)]

    def answer(request: Request) -> Reply:
        at = int(request.path.partition("last=")[2] or 0)
        ends = at + 250
        link = f"/v2/team/app/tags/list?n=1000&last={ends}"
        absolute = f"http://elsewhere.invalid{link}" if at else link
        more = {"Link": f'<{absolute}>; rel="next"'} if ends < 600 else {}
        return as_json({"tags": tags[at:ends]}, **more)

    server.answer = answer
    registry = world.registry()
    assert registry.tags(f"{server.host}/team/app") == tuple(tags)
    assert registry.requests == 3


def test_names_that_no_tag_can_have_are_left_out(server: Server, world: World) -> None:
    hostile = ["../../etc", "<script>", "a b", "\x1b[31m", "x" * 129, "--help", "", "ok", "a/b", "ok"]
    serve(server, {"/v2/team/app/tags/list?n=1000": as_json({"tags": hostile})})
    assert world.registry().tags(f"{server.host}/team/app") == ("ok",)


def test_no_tags_at_all(server: Server, world: World) -> None:
    serve(server, {"/v2/team/app/tags/list?n=1000": as_json({"name": "team/app", "tags": None})})
    assert world.registry().tags(f"{server.host}/team/app") == ()


@pytest.mark.parametrize(("step", "size", "most"), [(0, 20_000, 9), (1, 20_000, 9), (1, 1, 20)])
def test_a_list_without_end_is_left(
    server: Server, world: World, monkeypatch: pytest.MonkeyPatch, *, step: int, size: int, most: int
) -> None:
    """It sends the same page repeatedly, or always new ones; if these have next to nothing, the client would ask a
    hundred thousand times.
    """
    monkeypatch.setattr(registry_client, "MOST_PAGES", 20)

    def answer(request: Request) -> Reply:
        at = int(request.path.partition("last=")[2] or 0) + step
        page = [f"t{at}-{number}" for number in range(size)]
        return as_json({"tags": page}, Link=f'</v2/team/app/tags/list?last={at}>; rel="next"')

    server.answer = answer
    with pytest.raises(RegistryTrouble, match="does not end; none of it is used"):
        world.registry().tags(f"{server.host}/team/app")
    assert len(server.asked) <= most


def test_half_a_list_is_none(server: Server, world: World) -> None:
    """The second page fails: with only the tags of the first, the others would look as if they were gone."""
    first = as_json({"tags": ["1"]}, Link='</v2/team/app/tags/list?last=1>; rel="next"')
    serve(server, {"/v2/team/app/tags/list?n=1000": first})
    with pytest.raises(RegistryTrouble):
        world.registry().tags(f"{server.host}/team/app")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(headers={"Content-Type": "text/html"}, body=b"<html>please log in</html>"),
        as_json({"tags": "1"}),
        as_json({"tags": [1]}),
        as_json({"repositories": []}),
        as_json([]),
        Reply(headers={"Content-Type": "application/json"}, body=b"[" * 100_000),
        Reply(headers={"Content-Type": "application/json"}, body=b'{"tags": ["1", "2'),
        Reply(),
        Reply(status=204),
        Reply(status=418),
    ],
    ids=["a page", "text", "numbers", "other", "list", "deep", "truncated", "empty", "204", "418"],
)
def test_what_is_no_list_of_tags_is_trouble(server: Server, world: World, reply: Reply) -> None:
    server.answer = lambda request: reply
    with pytest.raises(RegistryTrouble, match=f"^{server.host}: .*") as caught:
        world.registry().tags(f"{server.host}/team/app")
    assert "\n" not in str(caught.value)


def test_no_such_repository(server: Server, world: World) -> None:
    with pytest.raises(RegistryDenied, match="has no repository of team/app; check the name"):
        world.registry().tags(f"{server.host}/team/app")


# ---------------------------------------------------------------- digests


def test_digest_by_head(server: Server, world: World) -> None:
    digest = "sha256:" + "a" * 64
    serve(server, {"/v2/team/app/manifests/1": Reply(headers={"Docker-Content-Digest": digest})})
    registry = world.registry()
    assert registry.digest(f"{server.host}/team/app:1") == digest
    assert registry.digest(f"{server.host}/team/app:gone") is None
    assert [request.method for request in server.asked] == ["HEAD", "HEAD"]
    assert "image.index" in server.asked[0].headers["Accept"]


@pytest.mark.parametrize("said", ["", "sha256:short", "<script>"])
def test_a_registry_that_does_not_say_the_digest(server: Server, world: World, said: str) -> None:
    body = b'{"schemaVersion": 2}'
    serve(server, {"/v2/team/app/manifests/1": Reply(headers={"Docker-Content-Digest": said}, body=body)})
    assert world.registry().digest(f"{server.host}/team/app:1") == digest_of(body)


# ---------------------------------------------------------------- images


def facts(server: Server, world: World, tag: str = "one") -> Any:
    return world.registry().facts(f"{server.host}/team/app:{tag}")


def test_what_an_image_says_of_itself(server: Server, world: World) -> None:
    settings = {"Env": ["CUDA_VERSION=11.8.0", "A=b=c", "EMPTY"], "Labels": {"x": "y"}}
    serve(server, an_image(10, created="2022-12-20T01:02:03.123456789Z", architecture="amd64", config=settings))
    found = facts(server, world)
    assert found.environment == {"CUDA_VERSION": "11.8.0", "A": "b=c", "EMPTY": ""}
    assert found.labels == {"x": "y"}


def test_of_an_index_the_image_of_the_architecture(server: Server, world: World) -> None:
    replies = an_image(10, config={"Labels": {"x": "y"}})
    child = digest_of(replies["/v2/team/app/manifests/one"].body)
    entries = [
        {"digest": "sha256:" + "0" * 64, "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": child, "platform": {"os": "linux", "architecture": "amd64"}},
    ]
    index = as_json({"manifests": entries}, kind=INDEX)
    serve(server, {**replies, "/v2/team/app/manifests/many": index})
    assert facts(server, world, "many").labels == {"x": "y"}
    with pytest.raises(RegistryDenied, match="has no image for linux/riscv64"):
        world.registry().facts(f"{server.host}/team/app:many", architecture="riscv64")


def test_other_content_than_the_digest_says_is_refused(server: Server, world: World) -> None:
    replies = an_image(10, architecture="amd64")
    blob = next(path for path in replies if "/blobs/" in path)
    serve(server, {**replies, blob: Reply(body=b'{"architecture": "evil"}')})
    with pytest.raises(RegistryTrouble, match="content that does not match its digest"):
        facts(server, world)
    serve(server, {f"/v2/team/app/manifests/sha256:{'1' * 64}": replies["/v2/team/app/manifests/one"]})
    with pytest.raises(RegistryTrouble, match="content that does not match its digest"):
        world.registry().facts(f"{server.host}/team/app@sha256:{'1' * 64}")


@pytest.mark.parametrize("body", [b"{}", b'{"schemaVersion": 1, "fsLayers": []}', b"no json"])
def test_a_manifest_that_is_none(server: Server, world: World, body: bytes) -> None:
    serve(server, {"/v2/team/app/manifests/one": Reply(headers={"Content-Type": MANIFEST}, body=body)})
    with pytest.raises(RegistryTrouble):
        facts(server, world)


# ---------------------------------------------------------------- pulls


def test_layers_have_their_sizes_and_the_digests_that_images_share(server: Server, world: World) -> None:
    first, second = an_image(1000, 10), an_image(1000, 7, 7)
    configuration = sum(len(reply.body) for path, reply in an_image(1).items() if "/blobs/" in path)
    manifest = second.pop("/v2/team/app/manifests/one")
    serve(server, {**first, **second, "/v2/team/app/manifests/two": manifest})
    one, two = (facts(server, world, tag).layers for tag in ("one", "two"))
    assert list(one.values()) == [configuration, 1000, 10]
    assert list(two.values()) == [configuration, 1000, 7], "a layer that it has twice is pulled once"
    assert list(one)[:2] == list(two)[:2]


def test_a_size_that_no_layer_has(server: Server, world: World) -> None:
    serve(server, an_image(-5))
    with pytest.raises(RegistryTrouble):
        facts(server, world)


def test_one_registry_from_the_environment() -> None:
    assert Registry.from_environ({"HOME": "/nowhere"}).requests == 0
