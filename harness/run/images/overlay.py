"""Packages laid over a base image: pip runs in a container of the base, which is committed as a new image.

Only the one pip call gets the CA bundle and the proxies; both are gone before the commit. The image's id changes with
every install, so the image is identified by its content: the base's digest and the installed distributions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker

from harness.errors import ImageUnavailable
from harness.model import Image, Install
from harness.model.watching import Say
from harness.run.docker import helpers
from harness.run.docker.attach import read_stream
from harness.run.docker.client import ca_bundle, if_full, proxies
from harness.run.docker.containers import NAME_LABEL, PIDS_LIMIT, archive
from harness.run.hosts.owner import OWNER_LABEL
from harness.run.images import build_errors
from harness.run.images.images import Found, find_python, found_locally, inspect, local_image, pull
from harness.run.images.ownership import IMAGE_LABEL
from harness.run.retrying import unavailable
from harness.run.tail import BoundedTail

CA_PATH = "/.harness-ca.pem"
LIST_PATH = "/.harness-requirements.txt"
REPOSITORY = "harness/overlay"
DIGEST_LABEL = "harness.digest"
VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
FORMAT = 2  # version of the committed image's layout: images of another format are made again
INSTALLED = Path(__file__).with_name("installed.py")
BASE_HELP = "`make base` builds a local base; then set HARNESS_BASE=harness-base:bookworm"
NOT_FOUND = "No matching distribution"
UNSEEN = (
    "UV_FIND_LINKS", "PIP_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_INDEX",
    "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL",
)  # fmt: skip
"""Settings of pip and uv that the version lookup on this machine uses, and that pip in a container does not get."""
UNSEEN_HELP = "give a base with such settings, or take `build:` with a Dockerfile that copies the wheels in"
INSTALL_S = 4 * 3600.0
DIGEST = re.compile(r"^[0-9a-f]{64}$", re.MULTILINE)
CONFIG_KEPT = ("Entrypoint", "Cmd", "WorkingDir", "User", "Env")


def install(
    client: docker.DockerClient,
    source: Install,
    *,
    image: Image,
    environ: Mapping[str, str],
    memory_bytes: int | None,
    say: Say,
) -> Found:
    """Return the base with the packages, made unless it is there, with `memory_bytes` at most. Raises ImageUnavailable
    with pip's reason.
    """
    base = pull(client, source.base, where=image.where, say=say, help=BASE_HELP)
    if not source.packages:
        return base
    named = _tag(base, source)
    there = local_image(client, f"{REPOSITORY}:{named}")
    if there is None:
        say(f"installing {' '.join(source.packages)}")
        with holder(client, base.id, image=image, memory_bytes=memory_bytes, say=say) as (container_id, python):
            _fill(
                client,
                container_id,
                base,
                python=python,
                tag=named,
                image=image,
                source=source,
                environ=environ,
                say=say,
            )
        there = inspect(client, f"{REPOSITORY}:{named}")
    return _found(there)


def _found(image: Mapping[str, Any]) -> Found:
    return Found(id=image["Id"], digest=image["Config"]["Labels"][DIGEST_LABEL])


def known(client: docker.DockerClient, source: Install) -> Found | None:
    """Return what was installed before over the base that the engine has, without asking a registry."""
    base = found_locally(client, source.base)
    if base is None or not source.packages:
        return base
    there = local_image(client, f"{REPOSITORY}:{_tag(base, source)}")
    return None if there is None else _found(there)


def _tag(base: Found, source: Install) -> str:
    more = [*(["exact"] if source.exact else []), *([source.hashes] if source.hashes else [])]
    named = json.dumps([FORMAT, base.id, base.digest, source.packages, source.python, *more])
    return hashlib.sha256(named.encode()).hexdigest()[:32]


@contextlib.contextmanager
def holder(
    client: docker.DockerClient,
    image_id: str,
    *,
    image: Image,
    memory_bytes: int | None,
    say: Say,
    network: bool = True,
) -> Iterator[tuple[str, str]]:
    """Yield a running container of an image, and the name of its Python. It waits for the end of its stdin, so it does
    not outlive us. It is locked as a trial's, but may have the network, and may replace files of the image's users.
    """
    python = find_python(client, image_id)
    if python is None:
        text = "the base image has no python3 or python on its PATH; take one that has"
        raise ImageUnavailable(f"{image.where}: {image.series} {image.version}: {text}")
    wait = [python, "-c", "import sys; sys.stdin.read()"]
    more = {"init": True, "cap_add": ["DAC_OVERRIDE"]}
    with (
        helpers.created(
            client, image_id, wait, purpose="install", memory_bytes=memory_bytes, pids=PIDS_LIMIT, network=network,
            host_config=more,
        ) as container_id,
        helpers.started(client, container_id, beat=lambda: say("starting the base image")),
    ):  # fmt: skip
        yield container_id, python


def _fill(
    client: docker.DockerClient,
    container_id: str,
    base: Found,
    *,
    python: str,
    tag: str,
    image: Image,
    source: Install,
    environ: Mapping[str, str],
    say: Say,
) -> None:
    """Install the packages in the container, and commit it."""
    place = f"{image.where}: {image.series} {image.version}"
    if source.python is not None:
        version = checked(client, container_id, [python, "-c", VERSION], place=place, say=say).strip()
        _check_python(source.python, version, place=place)
    with _with_ca(client, container_id, environ) as settings:
        pip = [python, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--no-input"]
        pip += ["--no-deps"] if source.exact else []
        if source.hashes:  # pip reads them in a file alone
            listed = archive({LIST_PATH[1:]: "\n".join(source.lines).encode()})
            client.api.put_archive(container_id, "/", listed)
        asked = ["-r", LIST_PATH] if source.hashes else ["--", *source.packages]
        environment = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore", **settings}
        code, output = _execute(client, container_id, [*pip, *asked], environment=environment, place=place, say=say)
    if code != 0:
        raise _failure(place, output, environ)
    checked(client, container_id, ["rm", "-f", CA_PATH, LIST_PATH], place=place, say=say)
    installed = DIGEST.search(
        checked(client, container_id, [python, "-c", INSTALLED.read_text()], place=place, say=say)
    )
    if installed is None:
        raise ImageUnavailable(f"{place}: the base image's {python} does not say what is installed; take another base")
    digest = hashlib.sha256(f"{base.digest} {installed[0]}".encode()).hexdigest()
    commit(client, container_id, base_id=base.id, tag=tag, digest=f"sha256:{digest}")


def _check_python(asked: str, found: str, *, place: str) -> None:
    """Raise ImageUnavailable unless the base's Python `found` (3.11.2) is `asked`, which may be shorter (3.11)."""
    if f"{found}.".startswith(f"{asked}."):
        return
    raise ImageUnavailable(
        f"{place}: the base has Python {found}, not {asked}; name another base, or leave out `python`"
    )


@contextlib.contextmanager
def _with_ca(client: docker.DockerClient, container_id: str, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Copy the CA bundle in, and yield the environment variables with which pip can reach its index."""
    settings = proxies(environ)
    if bundle := ca_bundle(environ):
        client.api.put_archive(container_id, "/", archive({CA_PATH[1:]: bundle.encode()}))
        settings |= {"PIP_CERT": CA_PATH, "SSL_CERT_FILE": CA_PATH}
    yield settings


def checked(client: docker.DockerClient, container_id: str, command: list[str], *, place: str, say: Say) -> str:
    """Return what a small command of ours prints there."""
    code, output = _execute(client, container_id, command, environment={}, place=place, say=say)
    if code != 0:
        raise ImageUnavailable(
            f"{place}: `{command[0]}` failed in the base image: {_reason(output)}; take another base"
        )
    return output


def _execute(
    client: docker.DockerClient,
    container_id: str,
    command: list[str],
    *,
    environment: dict[str, str],
    place: str,
    say: Say,
) -> tuple[int, str]:
    """Run a command as root in the container, and return its exit code and the end of its output."""
    api, output, told = client.api, BoundedTail(), command[0]
    until_s = time.monotonic() + INSTALL_S
    exec_id = api.exec_create(container_id, command, environment=environment, user="root")["Id"]
    for chunk in read_stream(api.exec_start(exec_id, socket=True)):
        output.add(chunk)
        lines = build_errors.readable(chunk.decode(errors="replace")).strip().splitlines()
        told = lines[-1][:120] if lines else told
        say(told)
        if time.monotonic() > until_s:
            raise ImageUnavailable(f"{place}: `{command[0]}` took more than {INSTALL_S / 3600:.0f} h; take `build:`")
    return api.exec_inspect(exec_id)["ExitCode"], output.text()


def _failure(place: str, output: str, environ: Mapping[str, str]) -> ImageUnavailable:
    reason = _reason(output)
    unseen = [name for name in UNSEEN if environ.get(name)]
    if unseen and NOT_FOUND in reason:
        reason += f"; {', '.join(unseen)} of this machine does not reach a container: {UNSEEN_HELP}"
    cause = f"connection broken: {reason}" if reason.startswith(build_errors.UNREACHED) else reason
    return unavailable(f"{place}: {reason}{if_full(reason)}", cause=cause)


def _reason(output: str) -> str:
    return build_errors.complaint(build_errors.readable(output).splitlines())[:400] or "pip failed without a word"


def commit(
    client: docker.DockerClient,
    container_id: str,
    *,
    base_id: str,
    tag: str,
    digest: str,
    environment: Sequence[str] | None = None,
) -> None:
    """Commit the container as an image that starts as its base does: same ENTRYPOINT, CMD, WORKDIR and USER, and the
    same ENV if no `environment` is given.
    """
    base = inspect(client, base_id)["Config"]
    conf = {name: base.get(name) for name in CONFIG_KEPT}
    conf["Env"] = conf["Env"] if environment is None else list(environment)
    conf["Entrypoint"] = conf["Entrypoint"] or []  # null would mean the container's own
    ours = {IMAGE_LABEL: f"{REPOSITORY}:{tag}", DIGEST_LABEL: digest}
    holders = {OWNER_LABEL: "", NAME_LABEL: ""}  # the engine adds the container's labels; empty values override them
    conf["Labels"] = {**(base.get("Labels") or {}), **holders, **ours}
    client.api.commit(container_id, repository=REPOSITORY, tag=tag, conf=conf)
