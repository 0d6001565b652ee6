"""Holds a container of an image while it is changed: runs commands in it, copies files in, and commits it. An overlay
is an image made in this way: a base image with packages installed on top.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker

from harness.errors import ImageUnavailable
from harness.model import Image, Install
from harness.model.watching import Say
from harness.run.docker import containers
from harness.run.docker.attach import read_stream
from harness.run.docker.containers import NAME_LABEL, OWNER_LABEL, PIDS_LIMIT, archive
from harness.run.docker.docker_client import ca_bundle, if_full, proxies
from harness.run.images import build_errors
from harness.run.images.find_images import Found, find_python, found_locally, inspect, local_image, pull
from harness.run.images.our_images import IMAGE_LABEL
from harness.run.interruptible import BoundedTail, NetworkTrouble, unavailable
from harness.run.process.environments import is_version

REPOSITORY = "harness/overlay"
DIGEST_LABEL = "harness.digest"
CONFIG_KEPT = ("Entrypoint", "Cmd", "WorkingDir", "User", "Env")
COMMAND_S = 4 * 3600.0
"""Time limit of one command in the container, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A running container. `python`: the name of its Python; `place`: the new image's place in the matrix file and its
    version, for messages."""

    client: docker.DockerClient
    container_id: str
    base_id: str
    python: str
    place: str
    say: Say

    def put(self, files: Mapping[str, bytes]) -> None:
        """Copy files, given by their absolute paths, into the container."""
        self.client.api.put_archive(self.container_id, "/", archive({path[1:]: data for path, data in files.items()}))

    def printed(self, *command: str) -> str:
        """Run a small command of the harness and return its output. Raises ImageUnavailable if it fails."""
        code, output = self.execute(command)
        if code != 0:
            why = why_failed(output).text
            raise ImageUnavailable(
                f"`{command[0]}` failed in the base image: {why}; use another base", place=self.place
            )
        return output

    def execute(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Run a command as root; return its exit code and the end of its output. Raises ImageUnavailable if it takes
        longer than COMMAND_S.
        """
        api, output, line = self.client.api, BoundedTail(), command[0]
        until_s = time.monotonic() + COMMAND_S
        variables = dict(environment or {})
        exec_id = api.exec_create(self.container_id, list(command), environment=variables, user="root")["Id"]
        for chunk in read_stream(api.exec_start(exec_id, socket=True)):
            output.add(chunk)
            lines = build_errors.readable(chunk.decode(errors="replace")).strip().splitlines()
            line = lines[-1][:120] if lines else line
            self.say(line)
            if time.monotonic() > until_s:
                took = f"took more than {COMMAND_S / 3600:.0f} h"
                raise ImageUnavailable(f"`{command[0]}` {took}; use `build:`", place=self.place)
        return api.exec_inspect(exec_id)["ExitCode"], output.text()

    def commit(self, *, tag: str, digest: str, environment: Sequence[str] | None = None) -> Found:
        """Commit the container as an image that starts as its base does: with the same ENTRYPOINT, CMD, WORKDIR and
        USER, and with the same ENV unless `environment` is given.
        """
        base, name = inspect(self.client, self.base_id)["Config"], f"{REPOSITORY}:{tag}"
        conf = {field: base.get(field) for field in CONFIG_KEPT}
        conf["Env"] = conf["Env"] if environment is None else list(environment)
        conf["Entrypoint"] = conf["Entrypoint"] or []  # null would keep the container's entrypoint
        ours = {IMAGE_LABEL: name, DIGEST_LABEL: digest}
        # The engine adds the container's labels; empty values override them.
        conf["Labels"] = {**(base.get("Labels") or {}), OWNER_LABEL: "", NAME_LABEL: "", **ours}
        self.client.api.commit(self.container_id, repository=REPOSITORY, tag=tag, conf=conf)
        return Found(id=inspect(self.client, name)["Id"], digest=digest)


@contextlib.contextmanager
def hold_image(
    client: docker.DockerClient,
    image_id: str,
    *,
    image: Image,
    memory_bytes: int | None,
    say: Say,
    network: bool = True,
) -> Iterator[Holder]:
    """Yield a running container of `image_id`, in which `image` is made. Raises ImageUnavailable if it has no Python.

    The container waits for the end of its stdin, so that it does not outlive this process. It has the restrictions of a
    trial's container, but may have network access, and may replace files of any user.
    """
    place, python = image.place, find_python(client, image_id)
    if python is None:
        raise ImageUnavailable("the base image has no python3 or python on its PATH; use another base", place=place)
    with (
        containers.created(
            client,
            image_id,
            [python, "-c", "import sys; sys.stdin.read()"],
            purpose="install",
            memory_bytes=memory_bytes,
            pids=PIDS_LIMIT,
            network=network,
            host_config={"init": True, "cap_add": ["DAC_OVERRIDE"]},
        ) as container_id,
        containers.started(client, container_id, beat=lambda: say("starting the base image")),
    ):
        yield Holder(client=client, container_id=container_id, base_id=image_id, python=python, place=place, say=say)


def committed(client: docker.DockerClient, tag: str) -> Found | None:
    """Return the image that was committed under a tag; None if the engine does not have it."""
    record = local_image(client, f"{REPOSITORY}:{tag}")
    return None if record is None else Found(id=record["Id"], digest=record["Config"]["Labels"][DIGEST_LABEL])


def why_failed(output: str) -> build_errors.Complaint:
    """Return the reason for the failure of a command from its output, in one line of at most 400 characters."""
    found = build_errors.complaint(build_errors.readable(output).splitlines())
    return found._replace(text=found.text[:400] or "pip failed without a message")


# ---------------------------------------------------------------- overlay


CA_PATH = "/.harness-ca.pem"
LIST_PATH = "/.harness-requirements.txt"
VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
FORMAT = 2  # version of the committed image's layout; images of another format are made again
INSTALLED = Path(__file__).with_name("script_installed.py")
BASE_HELP = "`make base` builds a local base; then set HARNESS_BASE=harness-base:bookworm"
NOT_FOUND = "No matching distribution"  # pip's words
UNSEEN = (
    "UV_FIND_LINKS", "PIP_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_INDEX",
    "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL",
)  # fmt: skip
"""Settings of pip and uv that the version lookup on this machine uses, but that pip in a container does not get."""
UNSEEN_HELP = "use a base that has these settings, or `build:` with a Dockerfile that copies the wheels in"
DIGEST = re.compile(r"^[0-9a-f]{64}$", re.MULTILINE)


def install(
    client: docker.DockerClient,
    source: Install,
    *,
    image: Image,
    environ: Mapping[str, str],
    memory_bytes: int | None,
    say: Say,
) -> Found:
    """Return the image of the base with the packages; make it if the engine does not have it. `memory_bytes` limits the
    memory of the install. Raises ImageUnavailable with pip's reason.
    """
    base = pull(client, source.base, where=image.where, say=say, help=BASE_HELP)
    if not source.packages:
        return base
    tag = _tag(base, source)
    if (there := committed(client, tag)) is not None:
        return there
    say(f"installing {' '.join(source.packages)}")
    with hold_image(client, base.id, image=image, memory_bytes=memory_bytes, say=say) as holder:
        _install(holder, source, environ=environ)
        installed = DIGEST.search(holder.printed(holder.python, "-c", INSTALLED.read_text()))
        if installed is None:
            why = f"the base image's {holder.python} does not list what is installed"
            raise ImageUnavailable(f"{why}; use another base", place=holder.place)
        digest = hashlib.sha256(f"{base.digest} {installed[0]}".encode()).hexdigest()
        return holder.commit(tag=tag, digest=f"sha256:{digest}")


def known(client: docker.DockerClient, source: Install) -> Found | None:
    """Return the image if it was made before over the base that the engine has now; else None. Do not ask a
    registry."""
    base = found_locally(client, source.base)
    if base is None or not source.packages:
        return base
    return committed(client, _tag(base, source))


def _tag(base: Found, source: Install) -> str:
    more = [*(["exact"] if source.exact else []), *([source.hashes] if source.hashes else [])]
    content = json.dumps([FORMAT, base.id, base.digest, source.packages, source.python, *more])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _install(holder: Holder, source: Install, *, environ: Mapping[str, str]) -> None:
    """Install the packages in the container, and then remove the files that pip needed. Raises ImageUnavailable."""
    if source.python is not None:
        version = holder.printed(holder.python, "-c", VERSION).strip()
        if not is_version(version, source.python):
            text = f"the base has Python {version}, not {source.python}; use another base, or omit `python`"
            raise ImageUnavailable(text, place=holder.place)
    pip = [holder.python, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--no-input"]
    pip += ["--no-deps"] if source.exact else []
    requirements = ["--", *source.packages]
    if source.hashes:  # pip reads them only from a file
        holder.put({LIST_PATH: "\n".join(source.lines).encode()})
        requirements = ["-r", LIST_PATH]
    environment = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore", **proxies(environ)}
    if bundle := ca_bundle(environ):
        holder.put({CA_PATH: bundle.encode()})
        environment |= {"PIP_CERT": CA_PATH, "SSL_CERT_FILE": CA_PATH}
    code, output = holder.execute([*pip, *requirements], environment=environment)
    if code != 0:
        raise _failure(holder.place, output, environ)
    holder.printed("rm", "-f", CA_PATH, LIST_PATH)


def _failure(place: str, output: str, environ: Mapping[str, str]) -> ImageUnavailable:
    why, is_network = why_failed(output)
    unseen = [name for name in UNSEEN if environ.get(name)]
    if unseen and NOT_FOUND in why:
        why += f"; a container does not get {', '.join(unseen)} of this machine: {UNSEEN_HELP}"
    text = f"{why}{if_full(why)}"
    return NetworkTrouble(text, place=place) if is_network else unavailable(text, place=place, cause=why)
