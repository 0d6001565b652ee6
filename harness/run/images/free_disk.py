"""The free disk space where an engine keeps its images. The engine's API does not report it, so a container does:
its root lies on the same file system. This also works for engines on other machines."""

from __future__ import annotations

import re

import docker

from harness.model.doctor import Room
from harness.model.watching import Say
from harness.run.docker import helpers
from harness.run.docker.gpu_probe import smallest
from harness.run.images.images import find_python

PRINT_ROOM = "import os; s = os.statvfs('/'); print(s.f_bavail * s.f_frsize, s.f_blocks * s.f_frsize)"
ROOM = re.compile(r"^(\d{1,18}) (\d{1,18})\s*$", re.MULTILINE)
IMAGES_TRIED = 4
ROOM_S = 60.0


def ask(client: docker.DockerClient, *, say: Say) -> Room | None:
    """Return None if there is no image with a Python that tells it. Raises what the SDK and what `say` raise."""
    for image_id in list(smallest(client))[:IMAGES_TRIED]:
        python = find_python(client, image_id)
        if python is None:
            continue
        with helpers.created(client, image_id, [python, "-c", PRINT_ROOM], purpose="room") as container_id:
            try:
                said = helpers.printed(client, container_id, limit_s=ROOM_S, beat=lambda: say("asking for its room"))
            except helpers.Unfinished:  # an image of another kind tells nothing of this host
                continue
        if told := ROOM.search(said):
            return Room(free_bytes=int(told[1]), total_bytes=int(told[2]))
    return None
