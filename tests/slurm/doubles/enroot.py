"""enroot 3.5, as far as `container: enroot` uses it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import NoReturn

from tests.slurm.doubles.common import IMAGE_ENVIRONMENT, STATE, check_image, interfaces, log, refuse, run, write_image

MAGIC = b"hsqs"
URI = re.compile(r"docker://[^/#\s]+#[a-z0-9/._-]+(:[\w.:-]+)?")
MOUNT = re.compile(r"([^\s:]+):([^\s:]+):none:x-create=auto,rbind,ro")
SETTINGS = {"MOUNT_HOME": "no", "REMAP_ROOT": "no", "RESTRICT_DEV": "yes", "LOGIN_SHELL": "no"}


def main(arguments: list[str]) -> None:
    verb, rest = arguments[0], arguments[1:]
    if (verb, rest) == ("version", []):
        print("3.5.0")
    elif verb == "import":
        if len(rest) != 3 or rest[0] != "--output" or not URI.fullmatch(rest[2]):
            refuse(f"usage: import {rest}")
        log(verb=verb, uri=rest[2])
        write_image(Path(rest[1]), MAGIC)
    elif verb == "start":
        start(rest)
    elif (verb, rest) == ("list", []):
        print("\n".join(path.name for path in (STATE / "containers").glob("*")))
    elif verb == "remove" and rest[0] == "--force":
        for name in rest[1:]:
            (STATE / "containers" / name).unlink()
    else:
        refuse(f"usage: {arguments}")


def source_and_place(word: str) -> list[str]:
    found = MOUNT.fullmatch(word)
    if found is None:
        refuse(f"Invalid argument: {word}")
    return [path.replace(r"\040", " ") for path in found.groups()]


def start(rest: list[str]) -> NoReturn:
    environment, entrypoint, writable = list(IMAGE_ENVIRONMENT), "ENTRYPOINT=ran", False
    mounts: list[str] = []
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--rw":
            writable = True
        elif option == "--env":
            environment.append(rest.pop(0))
        elif option == "--mount":
            mounts += source_and_place(rest.pop(0))
        elif option == "--rc":
            if Path(rest.pop(0)).read_text() != 'exec "$@"\n':
                refuse("another command script than was to be expected")
            entrypoint = "ENTRYPOINT=left_out"
        else:
            refuse(f"usage: start {option}")
    if not writable:
        refuse("a root file system that is read-only")
    for name, value in SETTINGS.items():
        if os.environ.get(f"ENROOT_{name}") != value:
            refuse("ENROOT_{} is {}".format(name, os.environ.get(f"ENROOT_{name}")))
    for name in ("CONFIG", "DATA", "CACHE", "RUNTIME"):
        place = Path(os.environ[f"ENROOT_{name}_PATH"])
        if not place.parent.is_dir():
            refuse(f"no folder for {place}")
        place.mkdir()
    check_image(Path(rest[0]), MAGIC)
    log(verb="start", image=rest[0], environment=environment, interfaces=interfaces())
    run(rest[1:], [*environment, entrypoint], mounts=mounts)


if __name__ == "__main__":
    main(sys.argv[1:])
