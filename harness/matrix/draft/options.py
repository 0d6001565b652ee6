"""Defines the options that a user typed, and makes keys of a scenario from them: its mounts, and those of a server."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.model import Trials
from harness.model.servers import LOAD, rate_of

OPTIONS = {
    "gpus": "--gpus", "engine": "--engine", "install": "--with", "python": "--python", "vary": "--vary",
    "env_file": "--env-file", "network": "--network", "results": "--results", "steps_are": "--steps-are",
    "step_pattern": "--step-pattern", "judge": "--exit-code", "time": "--step-time", "serve": "--serve",
    "port": "--port", "tls": "--tls", "get": "--get", "post": "--post", "json": "--body", "requests": "--requests",
    "client": "--client", "ready": "--ready", "concurrency": "--concurrency", "rate": "--rate",
    "entrypoint": "--no-entrypoint",
}  # fmt: skip
"""The option of `harness try` from which each of these keys of a host, a series or a scenario is made."""


@dataclass(frozen=True, kw_only=True)
class Typed:
    """The words from which a matrix file is made: the options of `harness try` by their names, and `command`, which
    stands after `--`.

    `made_by`: the whole command line; `folder`: where the files are, as the matrix file names it. With `vary`, there
    are no `versions`. `files` are copied in beside those that the command names; those in `without` are not. `beside`:
    requirements to install with each version of a package; `python`: the version of the interpreter for packages and
    requirement files. A launch makes steps for at most `step_time_s`. With `step_pattern`, whose matching lines are
    steps, or `exit_code`, a program is measured as a command. `served`: the keys of a server, if the command starts
    one. `trials`: the launches of a version.
    """

    folder: Path
    command: Sequence[str] = ()
    made_by: Sequence[str] = ("harness", "try")
    versions: Sequence[str] = ()
    vary: Sequence[str] = ()
    engine: str | None = None
    gpus: str = "auto"
    files: Sequence[str] = ()
    without: Sequence[str] = ()
    volumes: Sequence[str] = ()
    caches: Sequence[str] = ()
    results: str | None = None
    env_file: str | None = None
    beside: Sequence[str] = ()
    python: str | None = None
    network: bool = False
    no_entrypoint: bool = False
    steps_are: str | None = None
    step_pattern: str | None = None
    exit_code: bool = False
    served: Mapping[str, Any] | None = None
    step_time_s: float = 60.0
    trials: Trials | None = None


def option_of(key: Sequence[str | int], typed: Typed) -> str:
    """Return the option from which a key of a drafted matrix file was made, as it was typed if it is one of several; ""
    if there is none."""
    inner = key[2:]  # the user never saw the names of the file's host, series and scenario, which may be any word
    if inner[:1] == ("mounts",) and len(inner) > 1:
        return [*(f"-v {each}" for each in typed.volumes), *(f"--cache {each}" for each in typed.caches)][int(inner[1])]
    if inner[:2] == ("install", 0):  # the versions themselves
        return ""
    if typed.vary and inner[:1] in (("params",), ("environment",)):  # the names of its variables may be any words
        return "--vary"
    return next((OPTIONS[step] for step in reversed(inner) if isinstance(step, str) and step in OPTIONS), "")


def typed_path(folder: Path, text: str) -> str:
    """Return a typed path below `folder`, with `~` filled in; where the home is unknown, it stays as it was typed."""
    return str(folder / os.path.expanduser(text))  # noqa: PTH111 (Path.expanduser raises an error then)


def mounts_of(typed: Typed) -> dict[str, Any]:
    """Return the scenario's key for volumes that are written HOST:AT, as for `docker run -v`, and warm caches, written
    NAME:AT. A host's path may have colons. Raises UsageError."""
    mounts = []
    for volume in typed.volumes:
        source, colon, at = volume.removesuffix(":ro").rpartition(":")
        if volume.endswith((":rw", ":z", ":Z")):
            raise UsageError(f"-v {volume}: data are mounted read-only, and never relabelled; write HOST:AT")
        if not colon or not source or not at:
            raise UsageError(f"-v {volume}: is not HOST:AT; write a path of the host and its path in the launch")
        mounts.append({"from": typed_path(typed.folder, source), "at": at})
    for text in typed.caches:
        name, colon, at = text.partition(":")
        if not colon or not name or not at:
            raise UsageError(f"--cache {text}: is not NAME:AT; write a name and its path in the launch")
        mounts.append({"cache": name, "at": at})
    return {"mounts": mounts} if mounts else {}


def served_by(command: Sequence[str], serve: bool, folder: Path, **typed: Any) -> Mapping[str, Any] | None:
    """Return the keys of the scenario of a server that `command` starts, for the options as typed, by their names; None
    without `serve`. Paths stay as typed. Raises UsageError."""
    given = {name: value for name, value in typed.items() if value is not None}
    if not serve:
        for name, value in given.items():
            typed_as = f"--{name}" if value is True else f"--{name} {value}"
            raise UsageError(f"{typed_as}: is for a server; add --serve")
        return None
    senders = [name for name in SENDER_OPTIONS if name in given]
    if len(senders) != 1:
        known = ", ".join(f"--{name}" for name in SENDER_OPTIONS)
        raise UsageError(f"--serve: give one of {known}, such as --get /health")
    if "port" not in given and not any("{port}" in word for word in command):
        raise UsageError(
            "--serve: the command must be told its port; write {port} in its place, or give the port of images: --port"
        )
    load = {name: given.pop(name) for name in LOAD if name in given}
    if "ready" in given:
        given["ready"] = {"http": given["ready"]}
    sent = _request({name: given.pop(name) for name in ("get", "post", "body") if name in given})
    if "client" in given:
        given["client"] = _client(given["client"], folder)
    if len(load) > 1:
        raise UsageError("--rate: says when requests begin, as --concurrency does; give one of them")
    if load and isinstance(given.get("client"), list):
        raise UsageError(f"--{next(iter(load))}: is not for a load generator, which has options of its own")
    if "rate" in load:
        try:
            rate_of(load["rate"])
        except ValueError as error:
            raise UsageError(f"--rate: {error}") from error
    if "requests" in given and not (folder / given["requests"]).is_file():
        raise UsageError(f"--requests {given['requests']}: no such file; name one of JSON lines")
    return {**given, **({"request": sent} if sent else {}), **({"params": load} if load else {})}


OF_A_SERVER = ("port", "tls", "ready", "get", "post", "body", "requests", "client", *LOAD)
"""The options, by their names, that only a server has."""
SENDER_OPTIONS = ("get", "post", "requests", "client")
"""The options of what sends requests, of which a server has one."""


def _request(given: dict[str, str]) -> dict[str, Any]:
    """Return the request of --get, --post and --body. Raises UsageError."""
    if "body" not in given:
        return given
    if "post" not in given:
        raise UsageError("--body: is the body of a POST request; give --post PATH")
    try:
        return {"post": given["post"], "json": json.loads(given["body"])}
    except ValueError as error:
        raise UsageError(f"--body {given['body']}: is not JSON: {error}") from error


def _client(text: str, folder: Path) -> str | list[str]:
    """Return the script, or the words of a load generator. Raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--client {text}: {error}") from error
    if len(words) != 1 or not words[0].endswith(".py"):
        return words
    if not (folder / words[0]).is_file():
        raise UsageError(f"--client {text}: no such file; name a script with setup(url)")
    return words[0]
