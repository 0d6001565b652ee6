"""Apptainer 1.3, as far as `container: apptainer` uses it."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from typing import NoReturn

from tests.slurm.doubles.common import IMAGE_ENVIRONMENT, check_image, interfaces, log, refuse, run, write_image

MAGIC = b"#!/usr/bin/env run-singularity\n"
URI = re.compile(r"docker://[^/\s]+/[a-z0-9/._-]+@sha256:[0-9a-f]{64}")
ALWAYS = {"--containall", "--no-home", "--writable-tmpfs", "--cleanenv", "--no-eval", "--no-privs"}
VALUES = {"--no-mount": "bind-paths", "--network": "none"}
LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    fcntl.ioctl(probe, 0x8914, struct.pack("16sh22x", b"lo", 0x41))
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Sets the loopback interface up, which is the only one of `--network none`."""
MOUNT = ("type=bind", ["source", "destination"], "ro")
MAYBE = {"--net", "--nv"}


def main(arguments: list[str]) -> None:
    verb, rest = arguments[0], arguments[1:]
    if arguments == ["--version"]:
        print("apptainer version 1.3.4")
    elif verb == "pull":
        if len(rest) != 3 or rest[0] != "--disable-cache" or not URI.fullmatch(rest[2]):
            refuse(f"usage: pull {rest}")
        log(verb=verb, uri=rest[2])
        write_image(Path(rest[1]), MAGIC)
    elif verb in ("run", "exec"):
        start(verb, rest)
    else:
        refuse(f"unknown command: {arguments}")


def start(verb: str, rest: list[str]) -> NoReturn:
    given: set[str] = set()
    mounts: list[str] = []
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--mount":
            (fields,) = csv.reader([rest.pop(0)], strict=True)
            kind, *places, rights = fields
            if (kind, [each.partition("=")[0] for each in places], rights) != MOUNT:
                refuse(f"invalid mount: {fields}")
            mounts += [each.partition("=")[2] for each in places]
            continue
        if option in given or option not in ALWAYS | MAYBE | set(VALUES):
            refuse(f"unknown flag, or twice: {option}")
        if option in VALUES and rest.pop(0) != VALUES[option]:
            refuse(f"invalid value for {option}")
        given.add(option)
    if ALWAYS - given or "--no-mount" not in given or ("--net" in given) != ("--network" in given):
        refuse(f"left out: {sorted(ALWAYS - given)}")
    check_image(Path(rest[0]), MAGIC)
    log(verb="start", image=rest[0], gpus="--nv" in given, interfaces=["lo"] if "--net" in given else interfaces())
    entrypoint = "ENTRYPOINT=ran" if verb == "run" else "ENTRYPOINT=left_out"
    alone = ["--net", sys.executable, "-c", LOOPBACK] if "--net" in given else []
    unshare = ["--pid", "--fork", "--kill-child", *alone]
    run(rest[1:], [*IMAGE_ENVIRONMENT, entrypoint], unshare=unshare, mounts=mounts)


if __name__ == "__main__":
    main(sys.argv[1:])
