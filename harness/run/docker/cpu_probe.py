"""Asks a Docker Engine elsewhere for the model of its CPU, which the engine's API does not tell: a container does."""

from __future__ import annotations

from collections.abc import Sequence

import docker

from harness.model import Image
from harness.model.watching import Say
from harness.run.docker import helpers
from harness.run.docker.gpu_probe import GetOne, with_python

PRINT_MODEL = (
    "import platform; lines = open('/proc/cpuinfo').read().splitlines(); "
    "print('cpu:' + next((x.split(':', 1)[1] for x in lines if x.startswith('model name')), platform.machine()))"
)
MARK = "cpu:"
LONGEST = 100
PROBE_S = 60.0


def ask(client: docker.DockerClient, *, images: Sequence[Image], get_one: GetOne, say: Say) -> str | None:
    """Return the model; None if no image tells it. `get_one` gets one of `images`, and is called as a last resort.

    Raises InfrastructureError, what `say` raises, and what the SDK raises.
    """
    for image_id, python in with_python(client, images, get_one):
        with helpers.created(client, image_id, [python, "-c", PRINT_MODEL], purpose="cpu") as container_id:
            try:
                said = helpers.printed(client, container_id, limit_s=PROBE_S, beat=lambda: say("asking for its CPU"))
            except helpers.Unfinished:  # an image of another kind tells nothing of this host
                continue
        told = next((line.removeprefix(MARK).strip() for line in said.splitlines() if line.startswith(MARK)), "")
        if told and told.isprintable():
            return told[:LONGEST]
    return None
