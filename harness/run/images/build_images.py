"""Builds images from a Dockerfile, once for each content of its context.

Behind a company proxy, a build needs the machine's CA bundle. If the Dockerfile mentions `.harness/ca.pem`, that file
is added to the context (empty if the machine has no bundle); if only an early stage uses it, the final image does not
contain it. Proxy settings are passed as Docker's predefined build args, which no image keeps.

The intermediate images of a build (early stages, and all images of a failed build) have no name, so nothing else would
remove them, and take 1.4 GB for each version of TensorFlow. Their ids are read from the engine's output during the
build. The commands of the Dockerfile print to the same output and could print any id, so an image is removed only if
it has no name, is newer than the start of the build, and is not in use.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound
from docker.utils.build import exclude_paths

from harness.errors import ImageUnavailable, InfrastructureError
from harness.model import Build, Image
from harness.model.watching import Say
from harness.run.docker.containers import CONFLICT
from harness.run.docker.docker_client import ca_bundle, explanation, if_full, moment, proxies
from harness.run.docker.tar_streams import of_context
from harness.run.engine import OnDisk, sha256_of
from harness.run.images import build_errors
from harness.run.images.find_images import inspect, local_image
from harness.run.images.our_images import IMAGE_LABEL
from harness.run.interruptible import streamed, unavailable

CA_PATH = ".harness/ca.pem"
TOLD_LINES = 20
"""Number of lines at the end of a build's output that are searched for the reason for its failure."""
STEP_FAILED = ("The command '", 'building at STEP "RUN')  # Docker's message, and Podman's
ENDING_S = 3.0  # seconds that the engine may take to end the container of an interrupted build


def name_of_build(client: docker.DockerClient, source: Build, *, image: Image) -> str:
    """Return the image's name: a hash of the context, the args and the ids of the bases. Raises ImageUnavailable."""
    args = dict(source.args)
    with _readable(source.context, image=image):
        text, files = (source.context / "Dockerfile").read_text(encoding="utf-8"), context_files(source.context)
    bases = [(local_image(client, base) or {"Id": base})["Id"] for base in base_names(text, args)]
    with _readable(source.context, image=image):
        return f"harness/build:{content_hash(source.context, files, args=args, bases=bases)[:32]}"


@contextlib.contextmanager
def _readable(context: Path, *, image: Image) -> Iterator[None]:
    """Turn read errors into ImageUnavailable. Do not call the engine inside: its errors may be OSErrors, too."""
    try:
        yield
    except FileNotFoundError as error:
        name = Path(error.filename).name if error.filename else "Dockerfile"
        raise ImageUnavailable(f"{context}: no {name} there", place=image.where) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ImageUnavailable(f"{context}: cannot be read: {error}; make it readable", place=image.where) from error
    except InfrastructureError as error:  # of `pieces_of`
        raise ImageUnavailable(error.text, place=image.where) from error


def context_files(context: Path) -> list[str]:
    """Return the paths, including folders, that `.dockerignore` does not exclude, sorted."""
    ignore = context / ".dockerignore"
    lines = ignore.read_text().splitlines() if ignore.is_file() else []
    patterns = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return sorted(exclude_paths(str(context), patterns))


def base_names(dockerfile: str, args: Mapping[str, str]) -> list[str]:
    """Return the names of the images in a Dockerfile's FROM lines, with ARGs substituted."""
    values = dict(re.findall(r"^\s*ARG\s+(\w+)=[\"']?([^\s\"']*)", dockerfile, re.IGNORECASE | re.MULTILINE))
    values.update(args)
    names = re.findall(r"^\s*FROM\s+(?:--platform=\S+\s+)?(\S+)", dockerfile, re.IGNORECASE | re.MULTILINE)
    return [re.sub(r"\$\{?(\w+)(?::-[^}]*)?\}?", lambda arg: values.get(arg[1], ""), name) for name in names]


def content_hash(context: Path, files: list[str], *, args: Mapping[str, str], bases: list[str]) -> str:
    """Return the SHA-256, in hex, of the files of a context, the build's args and the ids of its bases."""
    digest = hashlib.sha256(repr((sorted(args.items()), bases)).encode())
    for name in files:
        path = context / name
        if path.is_symlink():
            digest.update(f"\n{name} -> {path.readlink()}".encode())
        elif path.is_file():
            digest.update(f"\n{name} {path.stat().st_mode & 0o777:o} ".encode())
            digest.update(sha256_of(OnDisk(path=path, size_bytes=path.stat().st_size)).digest())
    return digest.hexdigest()


def build(
    client: docker.DockerClient, source: Build, *, name: str, image: Image, environ: Mapping[str, str], say: Say
) -> None:
    """Build the image with this `name`. Raises ImageUnavailable with the reason from the build's output."""
    output: deque[str] = deque(maxlen=TOLD_LINES)

    def tell() -> None:
        say(f"building {image.version}: {output[-1][:100] if output else 'sending the context'}")

    say(f"building {image.version}")
    with _readable(source.context, image=image):
        uses_ca = CA_PATH in (source.context / "Dockerfile").read_text(encoding="utf-8")
        files = context_files(source.context)
    extra = {CA_PATH: ca_bundle(environ).encode()} if uses_ca else {}
    context: Any = _context(source.context, files, extra=extra, image=image)  # the SDK passes it on as it is
    start = functools.partial(
        client.api.build, fileobj=context, custom_context=True,
        tag=name, rm=True, forcerm=True, decode=True, buildargs={**proxies(environ), **dict(source.args)},
        labels={IMAGE_LABEL: name},
    )  # fmt: skip
    try:
        with stages_removed(client) as stages:
            failure = None
            for event in streamed(client.api, start, beat=tell):
                failure = event.get("error", failure)
                text = str(event.get("stream", ""))
                stages.hear(text)
                for line in filter(str.strip, build_errors.readable(text).splitlines()):
                    output.append(line.strip())
                    tell()
            if failure is not None:  # not earlier: the SDK closes the connection when all events are read
                raise APIError("build failed", explanation=str(failure))
    except APIError as error:
        why = cause = explanation(error)
        if why.startswith(STEP_FAILED):  # a command of the Dockerfile failed, so a retry would not help
            why, cause = ": ".join(filter(None, (build_errors.complaint(output).text, why))), ""
        raise unavailable(f"the build failed: {why}{if_full(why)}", place=image.place, cause=cause) from error


def _context(context: Path, files: list[str], *, extra: Mapping[str, bytes], image: Image) -> Iterator[bytes]:
    """Yield the archive of a build's context, as the engine takes it. Raises ImageUnavailable: what goes wrong with a
    file of this machine says nothing about the engine."""
    with _readable(context, image=image):
        yield from of_context(context, files, extra=extra)


# ---------------------------------------------------------------- intermediate images


@dataclass
class Stages:
    """Collects the ids of a build's images from the output of Docker's classic builder or of Podman."""

    made: list[str] = field(default_factory=list)
    _is_reused: bool = False
    """True if the next image id in the output belongs to an image that existed before."""

    def hear(self, text: str) -> None:
        """Read one text of the engine: the heading of a step, that its image was cached, or the id of its image."""
        if step := re.match(r"(?:\[\d+/\d+\] )?Step \d+/\d+ ?: (\w+)", text, re.IGNORECASE):
            self._is_reused = step[1].upper() == "FROM"
        elif re.match(r"-?--> Using cache", text.strip()):
            self._is_reused = True
        elif (image_id := re.fullmatch(r"(?: -|)--> ([0-9a-f]{11,64})\n", text)) and not self._is_reused:
            self.made.append(image_id[1])


@contextlib.contextmanager
def stages_removed(client: docker.DockerClient) -> Iterator[Stages]:
    """Remove the collected images after the block, even after an error, except those that have a name, are older than
    the block or are in use. The newest goes first, because each image blocks the removal of its parent."""
    since, stages = moment(client.info()["SystemTime"]), Stages()
    try:
        yield stages
    finally:
        until_s = time.monotonic() + ENDING_S
        for image_id in reversed(stages.made):
            while not _is_settled(client, image_id, since=since) and time.monotonic() < until_s:
                time.sleep(0.1)


def _is_settled(client: docker.DockerClient, image_id: str, *, since: datetime) -> bool:
    """Remove the image if allowed; return False if a container still blocks its removal."""
    try:
        image = inspect(client, image_id)
        if not image["RepoTags"] and moment(image["Created"]) >= since:
            client.api.remove_image(image_id, noprune=True)
    except ImageNotFound:
        return True
    except APIError as error:
        if error.status_code != CONFLICT:
            raise
        return "container" not in explanation(error)  # otherwise another image depends on it
    return True
