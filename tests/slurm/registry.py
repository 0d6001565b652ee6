"""A registry on loopback with one image: what the harness asks for before an import."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.players.servers import Reply, Request, Server, started

CONFIG = json.dumps(
    {"architecture": "amd64", "config": {"Env": ["CUDA_VERSION=12.1"], "Labels": {"com.example": "yes"}}}
).encode()
REPOSITORY = "team/image"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "size": len(CONFIG),
                   "digest": digest_of(CONFIG)},
        "layers": [],
    }
).encode()  # fmt: skip
DIGEST = digest_of(MANIFEST)


@contextmanager
def registry() -> Iterator[Server]:
    """Yield the server; `latest` and the digest name the image."""
    server = Server()
    server.answer = _answer
    with contextmanager(started)(server):
        yield server


def _answer(request: Request) -> Reply:
    base = f"/v2/{REPOSITORY}"
    if request.path in (f"{base}/manifests/latest", f"{base}/manifests/{DIGEST}"):
        length = {"Content-Length": str(len(MANIFEST))}
        return Reply(headers={"Content-Type": MANIFEST_TYPE, "Docker-Content-Digest": DIGEST, **length}, body=MANIFEST)
    if request.path == f"{base}/blobs/{digest_of(CONFIG)}":
        return Reply(body=CONFIG)
    return Reply(status=404)
