"""The Docker engine: a fresh container for each trial, on any engine that the SDK reaches (unix, tcp, ssh)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import docker

from harness.errors import EngineUnreachable, ImageUnavailable
from harness.model import Build, Host, Image, Install, Pull
from harness.run import builds, containers, images, overlay
from harness.run.client import connect, engine_errors
from harness.run.engine import Launch, Prepared, Say, Session
from harness.run.process import cpu_model
from harness.run.retrying import WAITS_S, Patience


def open_engine(
    host: Host, *, environ: Mapping[str, str], say: Say, waits_s: tuple[float, ...] = WAITS_S
) -> DockerEngine:
    """Raises EngineUnreachable if it does not answer within seconds. `waits_s`: before each new try of an image that
    could not be had because of the network."""
    say(f"asking {host.engine}")
    return DockerEngine(connect(host, environ=environ), host=host, environ=environ, patience=Patience(waits_s))


class DockerEngine:
    def __init__(
        self, client: docker.DockerClient, *, host: Host, environ: Mapping[str, str], patience: Patience
    ) -> None:
        self._client, self._host, self._environ, self._patience = client, host, environ, patience
        self._pythons: dict[str, str] = {}
        self._refused_ulimits: set[str] = set()
        with engine_errors(host.where, refused=EngineUnreachable):
            self.facts: Mapping[str, Any] = _facts(client)

    def prepare(self, image: Image, say: Say) -> Prepared:
        with engine_errors(image.where):
            found = self._patience.through(lambda: self._find(image, say), say=say)
            self._python_of(image, found.id)
        return Prepared(image=image, reference=found.id, digest=found.digest)

    def _find(self, image: Image, say: Say) -> images.Found:
        match image.source:
            case Pull(reference=reference):
                return images.pull(self._client, reference, where=image.where, say=say)
            case Build() as source:
                return builds.build(self._client, source, image=image, environ=self._environ, say=say)
            case Install() as source:
                return overlay.install(self._client, source, image=image, environ=self._environ, say=say)

    def _python_of(self, image: Image, image_id: str) -> str:
        """The name of the image's Python, looked up once."""
        if image_id not in self._pythons:
            name = images.find_python(self._client, image_id)
            if name is None:
                raise ImageUnavailable(
                    f"{image.where}: {image.version}: no python3 or python on this image's PATH; the agent needs one"
                    " (CPython 3.6 to 3.13)"
                )
            self._pythons[image_id] = name
        return self._pythons[image_id]

    def launch(self, launch: Launch) -> AbstractContextManager[Session]:
        with engine_errors(self._host.where):
            python = self._python_of(launch.prepared.image, launch.prepared.reference)
        return containers.running(self._client, launch, python=python, refused=self._refused_ulimits)

    def remove_leftovers(self) -> int:
        with engine_errors(self._host.where):
            return containers.remove_dead(self._client)

    def remove_images(self, say: Say) -> int:
        with engine_errors(self._host.where):
            if used := containers.in_use(self._client):
                say(f"images left alone: a harness is at work there ({used[0]}); clean again when it has ended")
                return 0
            return images.remove_made(self._client, say=say)

    def close(self) -> None:
        self._client.close()


def _facts(client: docker.DockerClient) -> dict[str, Any]:
    info = client.info()
    is_local = client.api.base_url == "http+docker://localhost"  # the SDK's name for a unix socket
    return {
        "engine": f"docker {info.get('ServerVersion')}",
        "name": info.get("Name"),
        "cpu": cpu_model() if is_local else None,
        "cpus": info.get("NCPU"),
        "memory_bytes": info.get("MemTotal"),
        "kernel": info.get("KernelVersion"),
        "architecture": info.get("Architecture"),
    }
