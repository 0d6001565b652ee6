"""Makes images in a container that is held while it is changed: commands run in it, files are copied in, and it is
committed.

An overlay is a base image with packages installed on top. A graft, for hybrids, is an image into which files of another
image are put: they are copied from a container of one image through this machine into a container of the other; nothing
is downloaded. Both are labelled as the harness's, so that `harness clean --images` finds them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import docker
from docker.errors import APIError

from harness.errors import ImageUnavailable
from harness.masking import without_credentials
from harness.model import Graft, Image, Install
from harness.model.watching import Say
from harness.run.docker import containers
from harness.run.docker.attach import read_stream
from harness.run.docker.containers import NAME_LABEL, OWNER_LABEL, PIDS_LIMIT
from harness.run.docker.docker_client import ca_bundle, explanation, if_full, proxies
from harness.run.docker.tar_streams import archive
from harness.run.images import build_errors
from harness.run.images.find_images import digest_of, find_python, inspect, local_image
from harness.run.images.our_images import DIGEST_LABEL, IMAGE_LABEL, OVERLAYS, EngineImage
from harness.run.interruptible import BoundedTail, NetworkTrouble, unavailable
from harness.run.process.environments import is_version

SCRIPT = Path(__file__).with_name("in_image.py")
CONFIG_KEPT = ("Entrypoint", "Cmd", "WorkingDir", "User", "Env")
COMMAND_S = 4 * 3600.0
"""Time limit of one command in the container, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A running container. `python`: the name of its Python; `place`: the new image's place in the matrix file and its
    version, for messages. All methods raise ImageUnavailable."""

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
        """Run a small command of the harness, which must succeed, and return its output."""
        code, output = self.execute(command)
        if code != 0:
            why = why_failed(output).text
            raise ImageUnavailable(
                f"`{command[0]}` failed in the base image: {why}; use another base", place=self.place
            )
        return output

    def execute(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Run a command as root, for at most COMMAND_S; return its exit code and the end of its output."""
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

    def commit(self, name: str, *, digest: str, environment: Sequence[str] | None = None) -> None:
        """Commit the container as an image that starts as its base does: with the same ENTRYPOINT, CMD, WORKDIR and
        USER, and with the same ENV unless `environment` is given.
        """
        base, (repository, tag) = inspect(self.client, self.base_id)["Config"], name.split(":")
        conf = {field: base.get(field) for field in CONFIG_KEPT}
        conf["Env"] = conf["Env"] if environment is None else list(environment)
        conf["Entrypoint"] = conf["Entrypoint"] or []  # null would keep the container's entrypoint
        ours = {IMAGE_LABEL: name, DIGEST_LABEL: digest}
        # The engine adds the container's labels; empty values override them.
        conf["Labels"] = {**(base.get("Labels") or {}), OWNER_LABEL: "", NAME_LABEL: "", **ours}
        self.client.api.commit(self.container_id, repository=repository, tag=tag, conf=conf)


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
            host_config={"cap_add": ["DAC_OVERRIDE"]},
        ) as container_id,
        containers.started(client, container_id, beat=lambda: say("starting the base image")),
    ):
        yield Holder(client=client, container_id=container_id, base_id=image_id, python=python, place=place, say=say)


def why_failed(output: str) -> build_errors.Complaint:
    """Return the reason for the failure of a command from its output, in one line of at most 400 characters."""
    found = build_errors.complaint(build_errors.readable(output).splitlines())
    return found._replace(text=found.text[:400] or "pip failed without a message")


# ---------------------------------------------------------------- overlays


CA_PATH = "/.harness-ca.pem"
LIST_PATH = "/.harness-requirements.txt"
VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
FORMAT = 2  # version of the committed image's layout; images of another format are made again
NOT_FOUND = "No matching distribution"  # pip's words
UNSEEN = (
    "UV_FIND_LINKS", "PIP_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_INDEX",
    "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL",
)  # fmt: skip
"""Settings of pip and uv that the version lookup on this machine uses, but that pip in a container does not get."""
UNSEEN_HELP = "use a base that has these settings, or `build:` with a Dockerfile that copies the wheels in"
DIGEST = re.compile(r"^[0-9a-f]{64}$", re.MULTILINE)


def name_of_overlay(source: Install, base: EngineImage) -> str:
    """Return the name of the image of the base with the packages: the base's own name if there are none."""
    if not source.packages:
        return source.base
    more = [*(["exact"] if source.exact else []), *([source.hashes] if source.hashes else [])]
    content = json.dumps([FORMAT, base["Id"], digest_of(source.base, base), source.packages, source.python, *more])
    return f"{OVERLAYS}:{hashlib.sha256(content.encode()).hexdigest()[:32]}"


def install(
    client: docker.DockerClient,
    source: Install,
    base: EngineImage,
    *,
    image: Image,
    environ: Mapping[str, str],
    memory_bytes: int | None,
    say: Say,
) -> None:
    """Make the image of the base with packages, within `memory_bytes`. Raises ImageUnavailable with pip's reason."""
    say(f"installing {without_credentials(' '.join(source.packages))}")
    with hold_image(client, base["Id"], image=image, memory_bytes=memory_bytes, say=say) as holder:
        if source.python is not None:
            version = holder.printed(holder.python, "-c", VERSION).strip()
            if not is_version(version, source.python):
                text = f"the base has Python {version}, not {source.python}; use another base, or omit `python`"
                raise ImageUnavailable(text, place=holder.place)
        pip = [holder.python, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--no-input"]
        pip += ["--no-deps"] if source.exact else []
        requirements = ["--", *source.packages]
        if source.needs_file:
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
        installed = DIGEST.search(holder.printed(holder.python, "-c", SCRIPT.read_text(), "installed"))
        if installed is None:
            why = f"the base image's {holder.python} does not list what is installed"
            raise ImageUnavailable(f"{why}; use another base", place=holder.place)
        digest = hashlib.sha256(f"{digest_of(source.base, base)} {installed[0]}".encode()).hexdigest()
        holder.commit(name_of_overlay(source, base), digest=f"sha256:{digest}")


def _failure(place: str, output: str, environ: Mapping[str, str]) -> ImageUnavailable:
    why, is_network = why_failed(output)
    unseen = [name for name in UNSEEN if environ.get(name)]
    if unseen and NOT_FOUND in why:
        why += f"; a container does not get {', '.join(unseen)} of this machine: {UNSEEN_HELP}"
    text = f"{why}{if_full(why)}{'' if is_network else build_errors.if_other_python(why)}"
    return NetworkTrouble(text, place=place) if is_network else unavailable(text, place=place, cause=why)


# ---------------------------------------------------------------- grafts


GRAFT_FORMAT = 1
STAGE = "/.harness-graft"


def name_of_graft(graft: Graft) -> str:
    tag = hashlib.sha256(json.dumps([GRAFT_FORMAT, asdict(graft)], sort_keys=True).encode()).hexdigest()[:32]
    return f"{OVERLAYS}:{tag}"


def make_graft(client: docker.DockerClient, graft: Graft, *, image: Image, memory_bytes: int | None, say: Say) -> None:
    """Make the image in two containers without network, by `in_image.py`. Raises ImageUnavailable."""
    place, name = image.place, name_of_graft(graft)
    for reference in (graft.reference, graft.other):
        if local_image(client, reference) is None:
            raise ImageUnavailable(f"{reference[:19]} was removed from the engine; narrow again", place=place)
    say("putting parts of one version into the other")
    hold = partial(hold_image, client, image=image, memory_bytes=memory_bytes, say=say, network=False)
    manifest = json.dumps({"remove": graft.remove, "copy": graft.copy, "libraries": graft.libraries}).encode()
    try:
        with hold(graft.other) as source, hold(graft.reference) as target:
            for holder, task in ((source, "collect"), (target, "remove")):
                holder.put({f"{STAGE}/manifest.json": manifest})
                holder.printed(holder.python, "-c", SCRIPT.read_text(), task)
            files, _ = client.api.get_archive(source.container_id, f"{STAGE}/tree")
            client.api.put_archive(target.container_id, STAGE, files)
            target.printed(target.python, "-c", SCRIPT.read_text(), "place")
            digest = hashlib.sha256(name.partition(":")[2].encode()).hexdigest()
            environment = [f"{variable}={value}" for variable, value in graft.environment]
            target.commit(name, digest=f"sha256:{digest}", environment=environment)
    except APIError as error:
        raise ImageUnavailable(f"cannot be made: {explanation(error)}{if_full(str(error))}", place=place) from error
