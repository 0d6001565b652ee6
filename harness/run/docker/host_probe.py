"""Reads what a Docker Engine's API does not report about its host: the CPU model and the free disk space.

A container reads them: it sees the host's processors, and its root is on the file system of the engine's images. This
also works for engines on other machines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import docker

from harness.model import Image
from harness.model.answers.doctor import Room
from harness.model.watching import Say
from harness.run.docker import helpers
from harness.run.docker.gpu_probe import IMAGES_TRIED, GetOne, smallest, with_python
from harness.run.images.find_images import find_python

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
    """Return the disk space where the engine keeps its images; None if no image can run the query. Raises any error of
    `say` or the SDK.
    """
    for image_id in list(smallest(client))[:IMAGES_TRIED]:
        if python := find_python(client, image_id):
            sizes = ROOM.search(_answer(client, image_id, [python, "-c", PRINT_ROOM], what="disk space", say=say))
            if sizes:
                return Room(free_bytes=int(sizes[1]), total_bytes=int(sizes[2]))
    return None


def _answer(client: docker.DockerClient, image_id: str, command: list[str], *, what: str, say: Say) -> str:
    """Return the output of a command in a container of an image; "" if it takes too long or prints too much."""
    with helpers.created(client, image_id, command, purpose=what.lower()) as container_id:
        try:
            return helpers.printed(client, container_id, limit_s=ANSWER_S, beat=lambda: say(f"reading its {what}"))
        except helpers.Unfinished:  # the fault of the image: another image may answer
            return ""
