"""How much room there is where an engine keeps its images. Its API does not tell, so a container looks: the file system
below its root is that one. It works for engines elsewhere, too."""

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
    """None if there is no image with a Python to look in. Raises what the SDK raises, and what `say` raises."""
    for image_id in list(smallest(client))[:IMAGES_TRIED]:
        python = find_python(client, image_id)
        if python is not None:
            numbers = _run(client, image_id, [python, "-c", PRINT_ROOM], say=say).split()
            if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
                return Room(free_bytes=int(numbers[0]), total_bytes=int(numbers[1]))
    return None


def _run(client: docker.DockerClient, image_id: str, command: list[str], *, say: Say) -> str:
    """What a command prints in a container that may do nothing else."""
    api = client.api
    config = api.create_host_config(**without_rights())
    made = api.create_container(
        image_id, entrypoint=command[:1], command=command[1:], host_config=config, **marked("room")
    )

    def run() -> list[object]:
        api.start(made["Id"])
        return [api.wait(made["Id"])]

    with removed(client, made["Id"]):
        for _ in streamed(api, run, beat=lambda: say("asking for its room")):
            """Its exit code says less than what it prints."""
        return bytes(api.logs(made["Id"], stdout=True, stderr=False)).decode(errors="replace")
