"""Installs packages over a base image: pip runs in a container of the base, which is committed as a new image.

Only the call of pip gets the CA bundle and the proxies; the image contains neither. The image's id changes with every
install, so the image is identified by its content: the base's digest and the installed distributions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import docker

from harness.errors import ImageUnavailable
from harness.model import Image, Install
from harness.model.watching import Say
from harness.run.docker.docker_client import ca_bundle, if_full, proxies
from harness.run.images.find_images import Found, found_locally, pull
from harness.run.images.held_container import Holder, committed, hold_image, why_failed
from harness.run.interruptible import NetworkTrouble, unavailable
from harness.run.process.interpreters import is_version

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
