"""A real registry on loopback: Debian's docker-registry, with images that a real engine pushes."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import bcrypt
import docker
import requests
import yaml
from docker.errors import APIError, ImageNotFound

from tests.registry.tokens import ISSUER, SERVICE, TokenService
from tests.serving import free_port

USER, PASSWORD = "$oauthtoken", "hunter2-of-the-registry"
ACCEPT = "application/vnd.docker.distribution.manifest.v2+json"
START_S = 20.0


@dataclass(kw_only=True)
class Held:
    """A running registry."""

    host: str
    client: docker.DockerClient
    folder: Path
    tokens: TokenService | None = None

    def push(self, repository: str, tag: str, *, base: str | None = None, files: Mapping[str, str]) -> str:
        """Push an image with these files (over `base`, if there is one), and return its digest."""
        name = f"{self.host}/{repository}"
        self.client.images.build(
            fileobj=_context(base or "scratch", files), custom_context=True, tag=f"{name}:{tag}", rm=True
        )
        said = self.client.api.push(name, tag=tag, stream=True, decode=True, auth_config=self.login)
        events = list(said)
        problems = [event["error"] for event in events if "error" in event]
        assert not problems, problems
        return next(event["aux"]["Digest"] for event in events if "aux" in event)

    @property
    def login(self) -> dict[str, str]:
        return {"username": USER, "password": PASSWORD}

    def delete(self, repository: str, digest: str) -> None:
        url = f"http://{self.host}/v2/{repository}/manifests/{digest}"
        headers = {"Accept": ACCEPT, "Authorization": self._authorization(repository)}
        requests.delete(url, headers=headers, timeout=10).raise_for_status()

    def tag_many(self, repository: str, tag: str, names: list[str]) -> None:
        """Let many tags point to the image of one tag; in the registry's files, as 600 requests take 16 s."""
        tags = self.folder / "data/docker/registry/v2/repositories" / repository / "_manifests/tags"
        for name in names:
            shutil.copytree(tags / tag, tags / name)

    def _authorization(self, repository: str) -> str:
        if self.tokens is None:
            return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return "Bearer " + self.tokens.token([f"repository:{repository}:pull,push,delete"], may_write=True)

    def clean(self) -> None:
        """Remove what the engine has of this registry: built, pulled, or left without a name by a later push."""
        ours = [
            image["Id"]
            for image in self.client.api.images()
            if any(
                name.startswith(f"{self.host}/") for name in (*(image["RepoTags"] or ()), *(image["RepoDigests"] or ()))
            )
        ]
        while ours:  # a base can be removed only after the images built on it, and the list is not sorted that way
            refused = [image for image in ours if not self._remove(image)]
            assert len(refused) < len(ours), f"the engine keeps {refused}"
            ours = refused

    def _remove(self, image: str) -> bool:
        """Remove an image, and return whether it is gone; False if it is still needed."""
        try:
            self.client.images.remove(image, force=True)
        except ImageNotFound:
            return True
        except APIError as error:
            if error.status_code != HTTPStatus.CONFLICT:
                raise
            return False
        return True


def _context(base: str, files: Mapping[str, str]) -> io.BytesIO:
    copies = "".join(f"COPY {name} /{name}\n" for name in files)
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, text in {
            "Dockerfile": f"FROM {base}\n{copies}LABEL of=tests\nENV CUDA_VERSION=11.8\n",
            **files,
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    context.seek(0)
    return context


def anonymous(folder: Path) -> dict[str, Any]:
    """A registry without logins."""
    return {}


def basic(folder: Path) -> dict[str, Any]:
    """A registry with a login for everything."""
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(rounds=4)).decode()
    (folder / "users").write_text(f"{USER}:{hashed}\n")
    return {"htpasswd": {"realm": "tests", "path": str(folder / "users")}}


def bearer(folder: Path, service: TokenService) -> dict[str, Any]:
    """A registry with tokens from a token service."""
    bundle = service.write_certificate(folder / "service.pem")
    return {
        "token": {"realm": service.realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(bundle)},
    }


@contextmanager
def held(
    folder: Path, *, auth: Mapping[str, Any], client: docker.DockerClient, tokens: TokenService | None = None
) -> Iterator[Held]:
    """Run a registry with its data in `folder`, on its own port."""
    host = f"127.0.0.1:{free_port()}"
    config = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": host, "secret": "of the tests"},
        **({"auth": dict(auth)} if auth else {}),
    }
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    registry = Held(host=host, client=client, folder=folder, tokens=tokens)
    try:
        _await(registry.host, process, folder / "log")
        yield registry
    finally:
        try:
            registry.clean()
        finally:  # whatever the engine answers, no server is left running
            process.terminate()
            process.wait()


def _await(host: str, process: subprocess.Popen[bytes], log: Path) -> None:
    ends_s = time.monotonic() + START_S
    while time.monotonic() < ends_s and process.poll() is None:
        try:
            if requests.get(f"http://{host}/v2/", timeout=1).status_code in (200, 401):
                return
        except requests.ConnectionError:
            time.sleep(0.05)
    raise AssertionError(f"docker-registry did not come up: {log.read_text()[-2000:]}")


def docker_config(folder: Path, host: str, *, password: str = PASSWORD) -> Path:
    """Write the configuration that `docker login` leaves behind."""
    folder.mkdir(exist_ok=True)
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return folder
