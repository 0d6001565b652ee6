"""The free disk space where an engine keeps its images. The engine's API does not report it, so a container does:
its root lies on the same file system. This also works for engines on other machines."""

from __future__ import annotations

import docker

from harness.model.doctor import Room
from harness.run.docker.containers import marked, removed, without_rights
from harness.run.docker.gpu_probe import smallest
from harness.run.engine import Say
from harness.run.images.images import find_python
from harness.run.waiting import streamed

PRINT_ROOM = "import os; s = os.statvfs('/'); print(s.f_bavail * s.f_frsize, s.f_blocks * s.f_frsize)"
IMAGES_TRIED = 4


def ask(client: docker.DockerClient, *, say: Say) -> Room | None:
    """Return the free space; None without an image with a Python. Raises what the SDK and `say` raise."""
    for image_id in list(smallest(client))[:IMAGES_TRIED]:
        python = find_python(client, image_id)
        if python is not None:
            numbers = _run(client, image_id, [python, "-c", PRINT_ROOM], say=say).split()
            if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
                return Room(free_bytes=int(numbers[0]), total_bytes=int(numbers[1]))
    return None


def _run(client: docker.DockerClient, image_id: str, command: list[str], *, say: Say) -> str:
    """Return what a command prints in a container without network or rights."""
    api = client.api
    config = api.create_host_config(**without_rights())
    made = api.create_container(
        image_id, entrypoint=command[:1], command=command[1:], host_config=config, **marked("room")
    )

    def run() -> list[object]:
        api.start(made["Id"])
        return [api.wait(made["Id"])]

    with removed(client, made["Id"]):
        for _ in streamed(api, run, beat=lambda: say("measuring its free disk space")):
            """The output says more than the exit code."""
        return bytes(api.logs(made["Id"], stdout=True, stderr=False)).decode(errors="replace")
