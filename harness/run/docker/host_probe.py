"""Reads what a Docker Engine's API does not report about its host: the CPU model, the free disk space and the GPUs.

A container reads them: it sees the host's processors, its root is on the file system of the engine's images, and it can
request all GPUs. This also works for engines on other machines. Any image with a Python that is already on the engine
will do: only its Python is started, without network access or capabilities. An image is pulled or built only if the
engine has none with a Python.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import docker
from docker.errors import APIError

from harness.errors import InfrastructureError
from harness.model import Image, Install, Pull
from harness.model.answers import Room
from harness.model.matrix import Gpu
from harness.model.watching import Say
from harness.run.docker import containers
from harness.run.docker.containers import ALL, ROOT, GpuAccess, Way
from harness.run.docker.docker_client import CDI_REMEDY, explanation
from harness.run.docker.tar_streams import archive
from harness.run.hosts.host_gpus import PROBE_S, parse_gpus
from harness.run.images.find_images import find_python, local_image
from harness.run.trial.payload import agent_files

PRINT_CPU = (
    "import platform; lines = open('/proc/cpuinfo').read().splitlines(); "
    "print('cpu:' + next((x.split(':', 1)[1] for x in lines if x.startswith('model name')), platform.machine()))"
)
CPU = re.compile(r"^cpu:[ \t]*(\S.{0,99})", re.MULTILINE)
PRINT_ROOM = "import os; s = os.statvfs('/'); print(s.f_bavail * s.f_frsize, s.f_blocks * s.f_frsize)"
ROOM = re.compile(r"^(\d{1,18}) (\d{1,18})\s*$", re.MULTILINE)
ANSWER_S = 60.0
"""Seconds that a container may take to answer."""


def cpu(client: docker.DockerClient, *, images: Sequence[Image], get_one: GetOne, say: Say) -> str | None:
    """Return the model of the CPU; None if no image can run the query. `get_one` pulls or builds one of `images`; it is
    called only as a last resort.

    Raises InfrastructureError, and any error of `say` or the SDK.
    """
    for image_id, python in with_python(client, images, get_one):
        answer = CPU.search(_answer(client, image_id, [python, "-c", PRINT_CPU], what="CPU", say=say))
        model = answer[1].strip() if answer else ""
        if model and model.isprintable():
            return model
    return None


def room(client: docker.DockerClient, *, say: Say) -> Room | None:
    """Return the space for the engine's images; None if no image can tell. Raises any error of `say` or the SDK."""
    for image_id in list(smallest(client))[:IMAGES_TRIED]:
        if python := find_python(client, image_id):
            sizes = ROOM.search(_answer(client, image_id, [python, "-c", PRINT_ROOM], what="disk space", say=say))
            if sizes:
                return Room(free_bytes=int(sizes[1]), total_bytes=int(sizes[2]))
    return None


def _answer(client: docker.DockerClient, image_id: str, command: list[str], *, what: str, say: Say) -> str:
    """Return the output of a command in a container of an image; "" if it takes too long or prints too much."""
    with containers.created(client, image_id, command, purpose=what.lower()) as container_id:
        try:
            return containers.printed(client, container_id, limit_s=ANSWER_S, beat=lambda: say(f"reading its {what}"))
        except containers.Unfinished:  # the fault of the image: another image may answer
            return ""


# ---------------------------------------------------------------- GPUs


SMALLEST_BYTES = 20 << 20
"""Size of an image in bytes below which it cannot hold a Python and is not tried."""
IMAGES_TRIED = 4
"""Number of images to try before the host's GPUs count as invisible, and its other facts as unknown."""
ENVIRONMENT = {
    "NVIDIA_DISABLE_REQUIRE": "1",  # even an image that is too new for the driver can run the probe
    "NVIDIA_DRIVER_CAPABILITIES": "utility,compute",
}
REMEDIES: Mapping[Way, str] = {
    "request": "install the NVIDIA Container Toolkit on that machine and restart its Docker, or use gpus: none",
    "runtime": "see that machine's `nvidia-container-runtime`, or use gpus: none",
    "cdi": f"{CDI_REMEDY}, or use gpus: none",
}
NO_GPU = "see `nvidia-smi` there; if it lists a GPU, reinstall the NVIDIA Container Toolkit; else use gpus: none"

GetOne = Callable[[], str]


def ask(
    client: docker.DockerClient, access: GpuAccess, *, place: str, images: Sequence[Image], get_one: GetOne, say: Say
) -> tuple[Gpu, ...]:
    """Return the GPUs of the engine. `get_one` pulls or builds one of `images`; it is called only as a last resort.

    Raises InfrastructureError if containers get no GPUs, and any error of `say` or the SDK.
    """
    for image_id, python in with_python(client, images, get_one):
        output = _probed(client, access, image_id=image_id, python=python, place=place, say=say)
        gpus = parse_gpus(output, place=place)
        if gpus is not None:  # None: the image's C library (musl) cannot load the driver's library
            return gpus
    raise InfrastructureError(f"containers with GPUs start there, but see no GPU; {NO_GPU}", place=place)


def with_python(client: docker.DockerClient, images: Sequence[Image], get_one: GetOne) -> Iterator[tuple[str, str]]:
    """Yield (image id, name of its Python) of up to IMAGES_TRIED images: first those of this run, then the engine's
    smallest. `get_one` is called only if none has a Python.
    """
    named = [each.source for each in images]
    references = [each.reference if isinstance(each, Pull) else each.base for each in named
                  if isinstance(each, (Pull, Install))]  # fmt: skip
    present = (record["Id"] for reference in references if (record := local_image(client, reference)))
    image_ids = dict.fromkeys(itertools.chain(present, smallest(client)))
    usable = ((image_id, python) for image_id in image_ids if (python := find_python(client, image_id)))
    first = next(usable, None)
    if first is None:
        image_id = get_one()
        first = image_id, find_python(client, image_id) or "python3"
    yield first
    yield from itertools.islice(usable, IMAGES_TRIED - 1)


def smallest(client: docker.DockerClient) -> Iterator[str]:
    """Return the ids of the engine's images that are large enough to have a Python, smallest first."""
    entries = sorted(client.api.images(), key=lambda entry: int(entry["Size"]))
    return (str(entry["Id"]) for entry in entries if entry["Size"] >= SMALLEST_BYTES)


def _probed(client: docker.DockerClient, access: GpuAccess, *, image_id: str, python: str, place: str, say: Say) -> str:
    """Return the output of the probe in a container of an image."""
    while True:
        try:
            with containers.created(
                client,
                image_id,
                [python, "-B", f"{ROOT}/start.py", "gpus"],
                purpose="gpus",
                environment={**ENVIRONMENT, **access.environment([ALL])},
                host_config=access.host_config([ALL]),
            ) as container_id:
                files = {f"{ROOT[1:]}/{name}": data for name, data in agent_files().items()}
                client.api.put_archive(container_id, "/", archive(files))
                return containers.printed(client, container_id, limit_s=PROBE_S, beat=lambda: say("listing its GPUs"))
        except containers.TooLate as error:
            text = f"the NVIDIA driver did not answer within {PROBE_S} s; see `nvidia-smi` there, or restart it"
            raise InfrastructureError(text, place=place) from error
        except containers.Unfinished as error:
            text = f"the GPUs could not be listed: the probe {error}; check the image that it ran in"
            raise InfrastructureError(text, place=place) from error
        except APIError as error:
            why = explanation(error)
            if not access.refused(why):
                text = f"a container with GPUs does not start: {why}; {REMEDIES[access.way]}"
                raise InfrastructureError(text, place=place) from error
