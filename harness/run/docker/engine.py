"""Runs each trial in a fresh container, on any Docker Engine that the SDK can reach (unix, tcp, ssh)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, NotFound

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError
from harness.model import Build, Graft, Host, Image, Install, Prepared, Pull, Varied
from harness.model.answers import HostCondition
from harness.model.matrix import Gpu
from harness.model.watching import Say
from harness.run import owners
from harness.run.docker import containers, host_probe, lease
from harness.run.docker.docker_client import check_podman, connect, engine_errors, is_podman
from harness.run.engine import NO_PYTHON, Engine, Kept, LaunchRequest, Lease, Session
from harness.run.hosts import side_by_side
from harness.run.hosts.host_gpus import first_available
from harness.run.images import find_images, our_images
from harness.run.images.build_images import build, name_of_build
from harness.run.images.disk_budget import architecture_of, total_bytes
from harness.run.images.held_container import install, make_graft, name_of_graft, name_of_overlay
from harness.run.interruptible import WAITS_S, NetworkRetries
from harness.run.process.engine import cpu_model
from harness.run.trial import carried_python

BASE_HELP = "`make base` builds a local base; then set HARNESS_BASE=harness-base:bookworm"


def open_engine(
    host: Host, *, environ: Mapping[str, str], say: Say, waits_s: tuple[float, ...] = WAITS_S
) -> DockerEngine:
    """Connect to the Docker Engine of `host`. `waits_s`: seconds before each retry to get an image after a network
    error. Raises EngineUnreachable if the engine does not answer in time."""
    say(f"connecting to {host.engine}")
    return DockerEngine(connect(host, environ=environ), host=host, environ=environ, patience=NetworkRetries(waits_s))


class DockerEngine(Engine):
    """Runs trials on the engine of `client`. `patience` retries to get an image after network errors."""

    def __init__(
        self, client: docker.DockerClient, *, host: Host, environ: Mapping[str, str], patience: NetworkRetries
    ) -> None:
        self._client, self._host, self._environ, self._patience = client, host, environ, patience
        self._place = str(host.where)
        self._layers: dict[str, dict[str, int]] = {}
        with engine_errors(host.where, refused=EngineUnreachable):
            info = client.info()
        check_podman(info, place=host.where)
        self._is_podman = is_podman(info)  # it asks registries for no image without pulling it
        self.facts: Mapping[str, Any] = _facts(client, info)
        self._ways = containers.Ways(
            gpus=containers.GpuAccess(info),
            memory_bytes=side_by_side.default_bytes(info.get("MemTotal")),
            labels_files=any("selinux" in option for option in info.get("SecurityOptions") or ()),
            ulimits=containers.Ulimits(info.get("ID")),
        )

    def gpus(self, images: Sequence[Image], say: Say) -> tuple[Gpu, ...]:
        say("listing its GPUs")
        place = f"{self._place}.gpus"
        with engine_errors(place):
            return host_probe.ask(
                self._client,
                self._ways.gpus,
                place=place,
                images=images,
                get_one=partial(self._first_available, images, say),
                say=say,
            )

    def cpu(self, images: Sequence[Image], say: Say) -> str | None:
        if self.facts["cpu"] is not None:
            return str(self.facts["cpu"])
        with engine_errors(self._place):
            get_one = partial(self._first_available, images, say)
            return host_probe.cpu(self._client, images=images, get_one=get_one, say=say)

    def _first_available(self, images: Sequence[Image], say: Say) -> str:
        """Return the id of the first of `images` that can be prepared."""
        place, remedy = f"{self._place}.gpus", "`docker load` one there"
        return first_available(self, images, say, place=place, remedy=remedy).reference

    # ------------------------------------------------------------ images

    def prepare(self, image: Image, say: Say) -> Prepared:
        with engine_errors(image.where):
            prepared = self._patience.through(lambda: self._get(image, say), say=say)
            lacks = not prepared.foreign and find_images.find_python(self._client, prepared.reference) is None
            return replace(prepared, lacks_python=lacks)

    def look(self, image: Image, say: Say) -> Prepared | None:
        try:
            with engine_errors(image.where, refused=ImageUnavailable):
                name = self._name(image)
                record = None if name is None else find_images.local_image(self._client, name)
                return None if name is None or record is None else self._prepared(image, name, record)
        except ImageUnavailable:  # an unreadable context or an invalid name: `prepare` reports it
            return None

    def refused(self, image: Image, say: Say) -> str:
        if not isinstance(image.source, Pull) or self._is_podman or self.look(image, say) is not None:
            return ""
        with engine_errors(image.where):
            return find_images.refused(self._client, image.source.reference, say=say)

    def _name(self, image: Image) -> str | None:
        """Return the name under which the engine has the image or will have it; None if the name depends on a base that
        the engine does not have. No registry is asked. Raises ImageUnavailable."""
        match image.source:
            case Graft() as graft:
                return name_of_graft(graft)
            case Pull(reference=reference):
                return reference
            case Build() as source:
                return name_of_build(self._client, source, image=image)
            case Install() as source:
                base = find_images.local_image(self._client, source.base)
                return None if base is None else name_of_overlay(source, base)
            case Varied():
                return None  # a plan has no such image on an engine of containers

    def _get(self, image: Image, say: Say) -> Prepared:
        """Pull, build or install the image unless the engine has it; return it. Raises ImageUnavailable."""
        match image.source:
            case Pull(reference=reference):
                find_images.pull(self._client, reference, where=image.where, say=say)
            case Install(base=reference):
                base = find_images.pull(self._client, reference, where=image.where, say=say, help=BASE_HELP)
        name = self._name(image)
        if name is None:
            raise ImageUnavailable("its base was removed while it was prepared; run again", place=image.place)
        if find_images.local_image(self._client, name) is None:
            memory_bytes = self._ways.memory_bytes
            match image.source:
                case Graft() as graft:
                    make_graft(self._client, graft, image=image, memory_bytes=memory_bytes, say=say)
                case Build() as source:
                    build(self._client, source, name=name, image=image, environ=self._environ, say=say)
                case Install() as source:
                    install(
                        self._client, source, base, image=image, environ=self._environ, memory_bytes=memory_bytes,
                        say=say,
                    )  # fmt: skip
        return self._prepared(image, name, find_images.inspect(self._client, name))

    def _prepared(self, image: Image, name: str, record: our_images.EngineImage) -> Prepared:
        own = architecture_of(self.facts)
        return find_images.prepared(image, name, record, own=own, asked=self._host.architecture)

    def holds(self, prepared: Prepared) -> bool:
        with engine_errors(prepared.image.where):
            return find_images.local_image(self._client, prepared.reference) is not None

    def size_bytes(self, prepared: Prepared) -> int:
        with engine_errors(prepared.image.where):
            return int(find_images.inspect(self._client, prepared.reference)["Size"])

    def _with_python(self, launch: LaunchRequest) -> tuple[LaunchRequest, Sequence[str]]:
        """Return a launch, with the harness's own interpreter if needed, and the words that start the agent's: the
        image's own, if it has one. Raises InfrastructureError."""
        name = find_images.find_python(self._client, launch.prepared.reference)
        if name is None and launch.scenario.needs_python:
            raise ImageUnavailable(NO_PYTHON, place=launch.prepared.image.place)
        if name is not None and not launch.scenario.serve:
            return launch, (name,)
        carried_python.check_machine(architecture_of(self.facts))
        own = carried_python.words(containers.ROOT)
        payload = carried_python.with_client(launch.payload, launch.scenario, containers.ROOT)
        return replace(launch, payload=payload), own if name is None else (name,)

    @contextlib.contextmanager
    def launch(self, launch: LaunchRequest) -> Iterator[Session]:
        with engine_errors(self._place):
            launch, python = self._with_python(launch)
        with contextlib.ExitStack() as ends:
            client = self._client
            if launch.payload.job.get("slices"):  # an SSH server allows ten sessions for each connection
                client = connect(self._host, environ=self._environ)
                ends.callback(client.close)
            yield ends.enter_context(containers.running(client, launch, python=python, ways=self._ways))

    def lease(self, say: Say, stopped: Callable[[], bool]) -> AbstractContextManager[Lease]:
        return lease.held(
            self._client,
            connect=lambda: connect(self._host, environ=self._environ),
            place=self._place,
            say=say,
            stopped=stopped,
        )

    def make_cache(self) -> str:
        with engine_errors(self._place):
            return str(self._client.api.create_volume(**containers.marked("cache"))["Name"])

    def has_cache(self, reference: str) -> bool:
        with engine_errors(self._place):
            try:
                self._client.api.inspect_volume(reference)
            except NotFound:
                return False
            return True

    def remove_cache(self, reference: str) -> None:
        with engine_errors(self._place):
            try:
                self._client.api.remove_volume(reference)
            except APIError as error:  # it is gone, or a container uses it
                if error.status_code not in (containers.NOT_FOUND, containers.CONFLICT):
                    raise

    def leftovers(self) -> tuple[str, ...]:
        with engine_errors(self._place):
            return (*self._leftovers().values(), *self._left_caches())

    def _left_caches(self) -> tuple[str, ...]:
        """Return the caches of dead runs: an owner that cannot be checked is gone if it does not hold the lease."""
        holder, left = lease.holder_of(self._client, place=self._place), []
        living = None if holder is None or holder.lapsed else holder.owner
        labels = [containers.OWNER_LABEL, containers.NAME_LABEL]
        for volume in self._client.api.volumes(filters={"label": labels}).get("Volumes") or ():
            owner, name = (volume["Labels"][label] for label in labels)
            lives = owners.is_alive(owner)
            if name == volume["Name"] and not (owner == living if lives is None else lives):
                left.append(name)
        return tuple(sorted(left))

    def _leftovers(self) -> dict[str, str]:
        """Return the names of the containers that dead runs left, by id, with a lease that has lapsed."""
        holder = lease.holder_of(self._client, place=self._place)
        lapsed = {holder.id: lease.NAME} if holder is not None and holder.lapsed else {}
        return {**containers.ours(self._client, dead=True), **lapsed}

    def remove_leftovers(self) -> int:
        with engine_errors(self._place):
            found = self._leftovers()
            for container_id in found:
                containers.remove(self._client, container_id)
            caches = self._left_caches()
            for cache in caches:
                self.remove_cache(cache)
            return len(found) + len(caches)

    def remove_images(self, say: Say) -> tuple[str, ...]:
        with engine_errors(self._place):
            living = list(containers.ours(self._client, dead=False).values())
            used = living or lease.holder_of(self._client, place=self._place)
            if used:
                say(f"no image removed: another harness is running there ({used}); clean again when it has ended")
                return ()
        return super().remove_images(say)

    def kept(self) -> tuple[Kept, ...]:
        with engine_errors(self._place):
            return our_images.kept(self._client.api, self._layers)

    def remove(self, kept: Kept, say: Say) -> bool:
        with engine_errors(self._place):
            return our_images.remove(self._client.api, kept.reference, say=say)

    def missing(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        with engine_errors(self._place):
            lease.make_empty_image(self._client)
            podman = str(self.facts["engine"]).startswith("podman")
            if podman and (named := next((path for path in paths if "," in str(path)), None)):
                remedy = "give it a name without one, or mount the folder above it"
                raise InfrastructureError(f"{named}: Podman mounts no path with a comma; {remedy}", place=self._place)
            return tuple(
                path for path in paths
                if not containers.exists(self._client, lease.EMPTY_IMAGE, path, from_root=podman)
            )  # fmt: skip

    def condition(self, say: Say) -> HostCondition:
        with engine_errors(self._place):
            leftovers, holder = self.leftovers(), lease.holder_of(self._client, place=self._place)
            return HostCondition(
                engine=str(self.facts["engine"]),
                api=str(self._client.api.api_version),
                gpu_way=None if self._host.gpus == "none" else self._ways.gpus.in_words,
                holder=None if holder is None or lease.NAME in leftovers else str(holder),
                room=host_probe.room(self._client, say=say),
                leftovers=leftovers,
                kept_bytes=total_bytes(our_images.kept(self._client.api, self._layers)),
                memory_limit_bytes=self._ways.memory_bytes,
            )

    def close(self) -> None:
        self._client.close()


def _facts(client: docker.DockerClient, info: Mapping[str, Any]) -> dict[str, Any]:
    is_local = client.api.base_url == "http+docker://localhost"  # the SDK's name for a unix socket
    return {
        "engine": f"{'podman' if is_podman(info) else 'docker'} {info.get('ServerVersion')}",
        "name": info.get("Name"),
        "cpu": cpu_model() if is_local else None,
        "cpus": info.get("NCPU"),
        "memory_bytes": info.get("MemTotal"),
        "memory_limit_bytes": side_by_side.default_bytes(info.get("MemTotal")),
        "kernel": info.get("KernelVersion"),
        "architecture": info.get("Architecture"),
    }
