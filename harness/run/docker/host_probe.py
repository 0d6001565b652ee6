"""Asks the host of a Docker Engine for what the engine's API does not tell: its CPU's model and its free disk space.

A container answers: it has the host's processors, and its root lies on the file system of the engine's images. This
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
from harness.run.images.images import find_python

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
    """Return the model of the CPU; None if no image can show it. `get_one` gets one of `images`, as a last resort.

    Raises InfrastructureError, and any error of `say` or the SDK.
    """
    for image_id, python in with_python(client, images, get_one):
        answer = CPU.search(_answer(client, image_id, [python, "-c", PRINT_CPU], what="CPU", say=say))
        model = answer[1].strip() if answer else ""
        if model and model.isprintable():
            return model
    return None


def room(client: docker.DockerClient, *, say: Say) -> Room | None:
    """Return the room where the engine keeps its images; None if no image can show it. Raises any error of `say` or the
    SDK.
    """
    for image_id in list(smallest(client))[:IMAGES_TRIED]:
        if python := find_python(client, image_id):
            sizes = ROOM.search(_answer(client, image_id, [python, "-c", PRINT_ROOM], what="room", say=say))
            if sizes:
                return Room(free_bytes=int(sizes[1]), total_bytes=int(sizes[2]))
    return None


def _answer(client: docker.DockerClient, image_id: str, command: list[str], *, what: str, say: Say) -> str:
    """Return what a command prints in a container of an image; "" if it does not end in time or prints too much."""
    with helpers.created(client, image_id, command, purpose=what.lower()) as container_id:
        try:
            return helpers.printed(client, container_id, limit_s=ANSWER_S, beat=lambda: say(f"asking for its {what}"))
        except helpers.Unfinished:  # an image of another kind tells nothing of this host
            return ""
