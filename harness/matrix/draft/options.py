"""Makes the keys of a scenario from options that a user typed: those of its mounts, and those of a server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError

OPTIONS = {
    "gpus": "--gpus", "engine": "--engine", "install": "--with", "python": "--python", "env_file": "--env-file",
    "results": "--results", "port": "--port", "get": "--get", "post": "--post", "concurrency": "--concurrency",
}  # fmt: skip
"""The option of `harness try` from which each of these keys of a matrix file is made."""


def option_of(key: Sequence[str | int], more: Mapping[str, Any]) -> str:
    """Return the option from which a key of a drafted matrix file was made, as it was typed if it is one of several; ""
    if there is none. `more`: the further keys of its scenario."""
    if "mounts" in key:
        mount = more["mounts"][key[key.index("mounts") + 1]]
        return f"--cache {mount['cache']}:{mount['at']}" if "cache" in mount else f"-v {mount['from']}:{mount['at']}"
    return next((OPTIONS[step] for step in reversed(key) if isinstance(step, str) and step in OPTIONS), "")


def mounts_of(volumes: Sequence[str], caches: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return the scenario's key for volumes that are written HOST:AT, as for `docker run -v`, and warm caches, written
    NAME:AT. A host's path may have colons, and is relative to `folder`. Raises UsageError."""
    mounts = []
    for volume in volumes:
        source, colon, at = volume.removesuffix(":ro").rpartition(":")
        if volume.endswith((":rw", ":z", ":Z")):
            raise UsageError(f"-v {volume}: data are mounted read-only, and never relabelled; write HOST:AT")
        if not colon or not source or not at:
            raise UsageError(f"-v {volume}: is not HOST:AT; write a path of the host and its path in the launch")
        mounts.append({"from": str(folder / Path(source).expanduser()), "at": at})
    for text in caches:
        name, colon, at = text.partition(":")
        if not colon or not name or not at:
            raise UsageError(f"--cache {text}: is not NAME:AT; write a name and its path in the launch")
        mounts.append({"cache": name, "at": at})
    return {"mounts": mounts} if mounts else {}


def served_by(
    command: Sequence[str],
    serve: bool,
    *,
    port: int | None,
    get: str | None,
    post: str | None,
    body: str | None,
    concurrency: int | None,
) -> Mapping[str, Any] | None:
    """Return the keys of the scenario of a server that `command` starts, for the options as typed; None without
    `serve`. Raises UsageError."""
    typed = {"--port": port, "--get": get, "--post": post, "--body": body, "--concurrency": concurrency}
    if not serve:
        for name, value in typed.items():
            if value is not None:
                raise UsageError(f"{name} {value}: is for a server; add --serve")
        return None
    if (get is None) == (post is None):
        raise UsageError("--serve: give one of --get PATH and --post PATH, such as --get /health")
    if body is not None and post is None:
        raise UsageError("--body: is the body of a POST request; give --post PATH")
    try:
        sent = {} if body is None else {"json": json.loads(body)}
    except ValueError as error:
        raise UsageError(f"--body {body}: is not JSON: {error}") from error
    if port is None and not any("{port}" in word for word in command):
        raise UsageError(
            "--serve: the command must be told its port; write {port} in its place, or give the port of images: --port"
        )
    request = {"get": get} if post is None else {"post": post, **sent}
    given = {"port": port, "request": request, "params": None if concurrency is None else {"concurrency": concurrency}}
    return {name: value for name, value in given.items() if value is not None}
