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
from email.utils import parsedate_to_datetime
from typing import Any

import docker
from docker.errors import APIError, NotFound

from harness.errors import InfrastructureError, Interrupted
from harness.model.watching import Say, Waiting
from harness.run.docker.containers import ABANDONED, CONFLICT, remove
from harness.run.docker.docker_client import ENGINE_ERRORS, engine_errors, explanation
from harness.run.hosts import holders
from harness.run.images.find_images import local_image
from harness.run.images.our_images import IMAGE_LABEL
from harness.run.interruptible import BEAT_S

NAME = "harness-lease"
EMPTY_IMAGE = "harness/lease:1"
NAME_IN_USE = "name is already in use"
HOLDER_LABEL = "harness.holder"
BEAT_EVERY_S = 15.0
"""Seconds between two signs of life of the holder. This must be much less than EXPIRES_S."""
EXPIRES_S = 90.0
"""Seconds without a sign of life after which a lease may be taken over."""
ASKED_EVERY_S = 1.0
"""Seconds between two attempts to get the lease."""


@dataclass(frozen=True, kw_only=True)
class LeaseHolder:
    """The holder of a lease, as the engine records it. `beat_s`: the engine's time at its last sign of life."""

    id: str
    owner: holders.Owner | None
    text: str
    since: str
    beat_s: int

    def lapsed(self, *, now_s: float) -> bool:
        """Return whether the lease may be taken over at `now_s` (the engine's time): its process is known to be gone,
        this process abandoned it, or the last sign of life is more than EXPIRES_S old."""
        is_gone = self.owner is not None and holders.is_alive(self.owner) is False
        return is_gone or self.id in ABANDONED or now_s - self.beat_s > EXPIRES_S

    def __str__(self) -> str:
        return f"{self.text}, since {self.since[:16].replace('T', ' ')} UTC"


class HeldLease:
    """A lease that this process holds. `client` belongs to the thread that calls `beat`."""

    def __init__(self, client: docker.DockerClient, container_id: str, *, place: str) -> None:
        self.id, self._client, self._place = container_id, client, place
        self._beaten_s = time.monotonic()
        self._lost = ""

    def check(self) -> None:
        """Raise InfrastructureError if the lease was lost, so that another harness may use the host."""
        if self._lost:
            raise InfrastructureError(
                f"the lease of this host was lost: {self._lost}; run again: its trials are kept", place=self._place
            )

    def beat(self) -> None:
        """Give a sign of life; acquire the lease again if its container was removed."""
        try:
            self._client.api.update_container(self.id, restart_policy=_policy(engine_time_s(self._client)))
            self._beaten_s = time.monotonic()
        except NotFound:  # `docker container prune` removes it
            self._take_again()
        except ENGINE_ERRORS as error:  # tried again at the next beat; the trials report it too
            if time.monotonic() - self._beaten_s > EXPIRES_S:
                self._lost = f"the engine could not be reached for {EXPIRES_S:.0f} s ({error})"

    def _take_again(self) -> None:
        try:
            self.id = _create(self._client)
        except ENGINE_ERRORS as error:
            self._lost = "another harness took it" if _is_conflict(error) else f"it was removed ({error})"

    @property
    def lost(self) -> bool:
        """Return whether the lease was lost, so that `check` raises."""
        return bool(self._lost)


# ---------------------------------------------------------------- holding it


@contextlib.contextmanager
def held(
    client: docker.DockerClient,
    *,
    connect: Callable[[], docker.DockerClient],
    place: str,
    say: Say,
    stopped: Callable[[], bool],
) -> Iterator[HeldLease]:
    """Hold the engine's lease during the block. While another harness holds it, wait and report the holder.

    `connect` makes the client of the thread that gives signs of life. Raises Interrupted when `stopped` returns true
    during the wait, and InfrastructureError.
    """
    with contextlib.closing(connect()) as other:
        with engine_errors(place):
            held_id = _acquired(client, place=place, say=say, stopped=stopped)
        lease, ended = HeldLease(other, held_id, place=place), threading.Event()
        beating = threading.Thread(target=_beat_until, args=(lease, ended), daemon=True)
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


def _beat_until(lease: HeldLease, ended: threading.Event) -> None:
    while not ended.wait(BEAT_EVERY_S) and not lease.lost:
        lease.beat()


# ---------------------------------------------------------------- acquiring it


def _acquired(client: docker.DockerClient, *, place: str, say: Say, stopped: Callable[[], bool]) -> str:
    """Wait until this process has the lease; return the id of its container. Raises Interrupted."""
    while not stopped():
        try:
            return _create(client)
        except APIError as error:
            if not _is_conflict(error):
                raise
        holder = holder_of(client, place=place)
        if holder is None:
            continue
        if holder.lapsed(now_s=engine_time_s(client)):
            remove(client, holder.id)
            continue
        until_s = time.monotonic() + ASKED_EVERY_S
        while time.monotonic() < until_s and not stopped():
            say(Waiting(f"waiting: this host is in use by {holder}"))
            time.sleep(BEAT_S)
    raise Interrupted("interrupted")


def _create(client: docker.DockerClient) -> str:
    """Create the lease's container; return its id. Raises APIError, for which `_is_conflict` is true if the lease is
    held already."""
    make_empty_image(client)
    labels = {holders.OWNER_LABEL: str(holders.this_process()), HOLDER_LABEL: holders.in_words()}
    config = client.api.create_host_config(restart_policy=_policy(engine_time_s(client)), network_mode="none")
    return str(client.api.create_container(EMPTY_IMAGE, ["never"], name=NAME, labels=labels, host_config=config)["Id"])


def _policy(now_s: int) -> Any:
    return {"Name": "on-failure", "MaximumRetryCount": now_s}


def _is_conflict(error: BaseException) -> bool:
    """Return whether the error means that the lease is held. Podman reports this with a general status code, so its
    message is searched."""
    return isinstance(error, APIError) and (error.status_code == CONFLICT or NAME_IN_USE in explanation(error))


def engine_time_s(client: docker.DockerClient) -> int:
    """Return the engine's clock in seconds since the epoch, from the Date header of its answer."""
    api = client.api
    answer = api.get(f"{api.base_url}/_ping", timeout=api.timeout)
    return round(parsedate_to_datetime(answer.headers["Date"]).timestamp())


def make_empty_image(client: docker.DockerClient) -> None:
    """Make an empty image for the lease's container. It needs no pull, and the container keeps no user's image in
    use."""
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


# ---------------------------------------------------------------- looking at it


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
    return LeaseHolder(
        id=container["Id"],
        owner=holders.parse(labels.get(holders.OWNER_LABEL, "")),
        text=labels[HOLDER_LABEL],
        since=container["Created"],
        beat_s=int(container["HostConfig"]["RestartPolicy"]["MaximumRetryCount"]),
    )


def lapsed(client: docker.DockerClient, *, place: str) -> LeaseHolder | None:
    """Return the holder if the lease has lapsed; None if the lease is free or its holder is alive."""
    holder = holder_of(client, place=place)
    return holder if holder is not None and holder.lapsed(now_s=engine_time_s(client)) else None
