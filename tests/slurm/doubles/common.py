"""What the doubles share. Standard library only: they run on the node."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

STATE = Path(os.environ.pop("DOUBLE_STATE", "."))
END = b"end of the image"
IMAGE_ENVIRONMENT = ["PATH=/usr/local/bin:/usr/bin:/bin", "FROM_THE_IMAGE=yes"]
IN_MEMORY = (
    'mount -t tmpfs tmpfs /mnt || exit 1; while [ "$1" != -- ]; do mkdir -p "$2" && mount --bind "$1" "$2" &&'
    ' mount -o remount,bind,ro "$2" || exit 1; shift 2; done; shift; mount -t tmpfs tmpfs /tmp && cd / && exec "$@"'
)
"""Mounts folders below /mnt. Files that a trial writes to /tmp disappear with it."""


def refuse(told: str) -> NoReturn:
    sys.exit(f"double: {told}")


def log(**told: object) -> None:
    with (STATE / "log").open("a") as file:
        file.write(json.dumps(told) + "\n")


def write_image(file: Path, magic: bytes) -> None:
    """Write an image in small pieces into the named file, as the real programs do."""
    if file.exists():
        refuse(f"File already exists: {file}")
    with file.open("wb") as image:
        image.write(magic)
        image.flush()
        if (STATE / "slow").exists():
            time.sleep(60)
        if (STATE / "large").exists():
            try:
                image.write(b"\0" * (4 << 20))
                image.flush()
            except OSError as error:
                refuse(f"{file}: {error.strerror}")
        image.write(END)


def check_image(file: Path, magic: bytes) -> None:
    content = file.read_bytes()
    if not content.startswith(magic) or not content.endswith(END):
        refuse(f"Invalid image format: {file}")


def interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def run(
    command: Sequence[str], environment: Sequence[str], *, unshare: Sequence[str] = (), mounts: Sequence[str] = ()
) -> NoReturn:
    """Become the program, with a /tmp in memory and only these variables. `mounts`: each source, and its place."""
    inside = ["sh", "-c", IN_MEMORY, "sh", *mounts, "--", "env", "-i", *environment, *command]
    words = ["unshare", "--mount", *unshare, *inside]
    os.execvp(words[0], words)
