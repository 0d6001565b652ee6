"""Virtual environments of the process engine, made once with uv and kept in a cache.

A virtual environment cannot be moved, so it is made in its place, under a lock, and a marker is written last:
without the marker it is a half-made one and is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import uv

from harness.errors import ImageUnavailable
from harness.model import Image, Install
from harness.run import interpreters
from harness.run.engine import Prepared, Say
from harness.run.waiting import BEAT_S, run_command

MARKER = "harness-complete.json"
DROPPED = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX")


def cache_folder(environ: Mapping[str, str]) -> Path:
    """${HARNESS_CACHE:-${XDG_CACHE_HOME:-~/.cache}/harness}/environments"""
    if own := environ.get("HARNESS_CACHE"):
        return Path(own) / "environments"
    home = Path(environ["HOME"]) if "HOME" in environ else Path.home()
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "harness" / "environments"


def prepare(image: Image, source: Install, *, environ: Mapping[str, str], say: Say) -> Prepared:
    """The environment of `image`, made now or found in the cache. Raises ImageUnavailable."""
    interpreter = interpreters.find(source.python, environ=environ)
    if interpreter is None:
        there = ", ".join(interpreters.known(environ)) or "none"
        raise ImageUnavailable(f"{image.where}: no Python {source.python} on this machine; there are: {there}")
    version = interpreters.version_of(interpreter)
    named = json.dumps([str(interpreter.resolve()), version, source.packages])
    folder = cache_folder(environ) / hashlib.sha256(named.encode()).hexdigest()[:20]
    with _locked(folder, say=say):
        if not (folder / MARKER).exists():
            if folder.exists():
                shutil.rmtree(folder)
            _make(folder, interpreter=interpreter, image=image, packages=source.packages, environ=environ, say=say)
            digest = digest_of(folder, version=version)
            _write_marker(folder / MARKER, {"digest": digest, "python": version, "packages": source.packages})
        made = json.loads((folder / MARKER).read_text())
    return Prepared(image=image, reference=str(python_of(folder)), digest=made["digest"])


def remove_all(*, environ: Mapping[str, str], say: Say) -> int:
    """Remove every environment of the cache that no other run is making now; how many."""
    removed = 0
    for folder in sorted(path for path in cache_folder(environ).glob("*") if path.is_dir()):
        with folder.with_suffix(".lock").open("w") as lock:
            if not _try_lock(lock):
                say(f"{folder} is being made by another run; left alone")
                continue
            shutil.rmtree(folder)
            removed += 1
    return removed


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def digest_of(folder: Path, *, version: str) -> str:
    """sha256 over the interpreter's version and each installed distribution's folder name and RECORD."""
    digest = hashlib.sha256(f"python {version}\n".encode())
    for record in sorted(folder.glob("lib/python*/site-packages/*.dist-info/RECORD")):
        # Lines of compiled files differ from install to install; those of the wheel do not.
        kept = [line for line in record.read_text().splitlines() if _is_content(line)]
        digest.update("\n".join([record.parent.name, *sorted(kept), ""]).encode())
    return f"sha256:{digest.hexdigest()}"


def _is_content(line: str) -> bool:
    name = line.split(",", 1)[0]
    scripts_and_notes = ("../", "/")  # console scripts hold this folder's own path
    return not name.startswith(scripts_and_notes) and not name.endswith((".pyc", "/INSTALLER", "/RECORD", "/REQUESTED"))


@contextmanager
def _locked(folder: Path, *, say: Say) -> Iterator[None]:
    """Hold the environment's lock; it is free again when its holder ends, however that happens."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        while not _try_lock(lock):
            say("waiting for another run to make this environment")
            time.sleep(BEAT_S)
        yield


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(
    folder: Path, *, interpreter: Path, image: Image, packages: tuple[str, ...], environ: Mapping[str, str], say: Say
) -> None:
    tool = uv.find_uv_bin()
    environment, told = _clean(environ), f"installing {' '.join(packages)}"

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return run_command(list(command), environment=environment, beat=lambda: say(told))

    _checked(run(tool, "venv", "--no-python-downloads", "--python", str(interpreter), str(folder)), image)
    if packages:
        say(told)
        _checked(run(tool, "pip", "install", "--python", str(python_of(folder)), "--", *packages), image)
    # Compiled here, so that the first trial does not pay for it. uv's own --compile-bytecode fails on 3.6; packages
    # may ship files that do not compile (templates, tests of syntax errors), so the exit code says nothing.
    run(str(python_of(folder)), "-m", "compileall", "-q", str(folder / "lib"))


def _checked(done: subprocess.CompletedProcess[str], image: Image) -> None:
    if done.returncode != 0:
        raise ImageUnavailable(f"{image.where}: {image.series} {image.version}: {_reason(done.stderr)}")


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Proxies, CA bundle and index settings pass on; what points at another environment does not."""
    return {name: value for name, value in environ.items() if name not in DROPPED}


def _reason(stderr: str) -> str:
    """uv's explanation in one line, without its drawing: from the first complaint on."""
    lines = [line.strip(" \t×╰─▶│├") for line in stderr.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Using ", "Resolved ", "hint:"))]
    return " ".join(lines)[-600:] or "uv failed without a word"


def _write_marker(path: Path, content: Mapping[str, object]) -> None:
    scratch = path.with_suffix(".new")
    with scratch.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(path)
