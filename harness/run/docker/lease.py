"""Provides the exclusive lease of a container engine: only its holder runs trials there.

The lease is a container with a fixed name that is created but never started, so it binds every harness that uses the
engine, by whatever address. The engine gives a name to only one container, so creating the container acquires the
lease. Its labels name the holder. Its restart policy, which has no effect on a container that never runs, is the only
field that can be changed later: every BEAT_EVERY_S seconds, the holder writes the engine's own time into it. A lease
may be taken over when this time is EXPIRES_S seconds old by the engine's clock; the clocks of other machines do not
matter. The old lease is removed by its id, so that only one of two simultaneous takeovers succeeds.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import docker
from docker.errors import APIError, NotFound

from harness.errors import InfrastructureError
from harness.model.watching import Say
from harness.run import owners
from harness.run.docker.containers import ABANDONED, CONFLICT, OWNER_LABEL, remove
from harness.run.docker.docker_client import ENGINE_ERRORS, engine_errors, engine_time_s, explanation
from harness.run.images.find_images import local_image
from harness.run.images.our_images import IMAGE_LABEL
from harness.run.leases import wait_until_free

NAME = "harness-lease"
EMPTY_IMAGE = "harness/lease:1"
NAME_IN_USE = "name is already in use"
HOLDER_LABEL = "harness.holder"
BEAT_EVERY_S = 15.0
"""Seconds between two signs of life of the holder. This must be much less than EXPIRES_S."""
EXPIRES_S = 90.0
"""Seconds without a sign of life after which a lease may be taken over."""
TRIES = 3
"""Attempts to get a lease that has just become free, before its next holder is waited for."""
ASKED_EVERY_S = 1.0
"""Seconds between two attempts to get the lease."""


@dataclass(frozen=True, kw_only=True)
class LeaseHolder:
    """The holder of a lease, as the engine records it. `owner`: its process. `beat_s`: the engine's time at its last
    sign of life. `lapsed`: the lease may be taken over, because its process is known to be gone, this process abandoned
    it, or the last sign of life is more than EXPIRES_S old."""

    id: str
    owner: str
    text: str
    beat_s: int
    lapsed: bool

    def __str__(self) -> str:
        return self.text


class HeldLease:
    """A lease that this process holds. `client` belongs to the thread that calls `beat`."""

    def __init__(self, client: docker.DockerClient, container_id: str, *, place: str) -> None:
        self.id, self._client, self._place = container_id, client, place
        self._beaten_s = time.monotonic()
        self.lost = ""

    def __call__(self) -> None:
        """Raise InfrastructureError if the lease was lost, so that another harness may use the host."""
        if self.lost:
            raise InfrastructureError(
                f"the lease of this host was lost: {self.lost}; run again: its trials are kept", place=self._place
            )

    def beat(self) -> None:
        """Give a sign of life; acquire the lease again if its container was removed."""
        try:
            self._client.api.update_container(self.id, restart_policy=_policy(engine_time_s(self._client)))
            self._beaten_s = time.monotonic()
        except NotFound:  # `docker container prune` removes it
            try:
                self.id = _create(self._client)
            except ENGINE_ERRORS as error:
                self.lost = "another harness took it" if _is_conflict(error) else f"it was removed ({error})"
        except ENGINE_ERRORS as error:  # tried again at the next beat; the trials report it too
            if time.monotonic() - self._beaten_s > EXPIRES_S:
                self.lost = f"the engine could not be reached for {EXPIRES_S:.0f} s ({error})"


@contextlib.contextmanager
def held(
    client: docker.DockerClient,
    *,
    connect: Callable[[], docker.DockerClient],
    place: str,
    say: Say,
    stopped: Callable[[], bool],
) -> Iterator[HeldLease]:
    """Hold the lease. `connect` makes the client that gives signs of life. Raises Interrupted and
    InfrastructureError."""
    made: list[str] = []

    def take() -> str:
        for _ in range(TRIES):
            try:
                made.append(_create(client))
                return ""
            except APIError as error:
                if not _is_conflict(error):
                    raise
            if (holder := holder_of(client, place=place)) is not None:
                if not holder.lapsed:
                    return str(holder)
                remove(client, holder.id)
        return "another harness"

    with contextlib.closing(connect()) as other:
        with engine_errors(place):
            wait_until_free(take, say=say, stopped=stopped, every_s=ASKED_EVERY_S)
        lease, ended = HeldLease(other, made[0], place=place), threading.Event()

        def beat_until_ended() -> None:
            while not ended.wait(BEAT_EVERY_S) and not lease.lost:
                lease.beat()

        beating = threading.Thread(target=beat_until_ended, daemon=True)
        beating.start()
        try:
            yield lease
        finally:
            ended.set()
            beating.join()
            try:
                remove(client, lease.id)
            except ENGINE_ERRORS as error:
                say(f"the lease could not be released; it expires in {EXPIRES_S:.0f} s ({error})")


def _create(client: docker.DockerClient) -> str:
    """Create the lease's container; return its id. Raises APIError; `_is_conflict` tells whether the lease is held."""
    make_empty_image(client)
    labels = {OWNER_LABEL: owners.this_process(), HOLDER_LABEL: owners.in_words()}
    config = client.api.create_host_config(restart_policy=_policy(engine_time_s(client)), network_mode="none")
    return str(client.api.create_container(EMPTY_IMAGE, ["never"], name=NAME, labels=labels, host_config=config)["Id"])


def _policy(now_s: int) -> Any:
    return {"Name": "on-failure", "MaximumRetryCount": now_s}


def _is_conflict(error: BaseException) -> bool:
    """Return whether the error means that the lease is held. Podman tells it in the message alone."""
    return isinstance(error, APIError) and (error.status_code == CONFLICT or NAME_IN_USE in explanation(error))


def make_empty_image(client: docker.DockerClient) -> None:
    """Make an empty image for the lease's container, which then needs no pull and keeps no image in use."""
    if local_image(client, EMPTY_IMAGE) is not None:
        return
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        folder = tarfile.TarInfo("harness")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    label = f"LABEL {IMAGE_LABEL}={EMPTY_IMAGE}"
    # The tag is part of the name, as in the API: Podman 4 ignores a tag that is given separately.
    client.api.import_image_from_data(buffer.getvalue(), repository=EMPTY_IMAGE, changes=[label])


def holder_of(client: docker.DockerClient, *, place: str) -> LeaseHolder | None:
    """Return the holder of the lease; None if it is free. Raises InfrastructureError if a container that is not the
    harness's has the lease's name, and any error of the SDK."""
    try:
        container: Mapping[str, Any] = client.api.inspect_container(NAME)
    except NotFound:
        return None
    labels = container["Config"]["Labels"] or {}
    if HOLDER_LABEL not in labels:
        raise InfrastructureError(f"the harness did not make the container {NAME!r}; rename or remove it", place=place)
    beat_s = int(container["HostConfig"]["RestartPolicy"]["MaximumRetryCount"])
    is_gone = owners.is_alive(labels.get(OWNER_LABEL, "")) is False or container["Id"] in ABANDONED
    return LeaseHolder(
        id=container["Id"],
        owner=labels.get(OWNER_LABEL, ""),
        text=f"{labels[HOLDER_LABEL]}, since {container['Created'][:16].replace('T', ' ')} UTC",
        beat_s=beat_s,
        lapsed=is_gone or engine_time_s(client) - beat_s > EXPIRES_S,
    )
