"""Finds interpreters of the wanted Python version on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path


def find(version: str | None, *, environ: Mapping[str, str]) -> Path | None:
    """Return the first interpreter of `version` ("3.7" or "3.7.16"); None if there is none. If `version` is None,
    return the harness's own interpreter."""
    if version is None:
        return Path(sys.executable)
    return next((path for path in candidates(environ) if is_version(version_of(path), version)), None)


def versions(environ: Mapping[str, str]) -> list[str]:
    """Return the Python versions on this machine, oldest first."""
    versions = {version for path in candidates(environ) if (version := version_of(path))}
    return sorted(versions, key=lambda text: [int(part) for part in re.findall(r"\d+", text)])


def is_version(version: str, wanted: str) -> bool:
    """Return whether `version` (3.7.16) is `wanted` or a release of it, if `wanted` is shorter (3.7)."""
    return version == wanted or version.startswith(f"{wanted}.")


def candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the harness's own interpreter, then those of pyenv, then of uv, then those on PATH."""
    yield Path(sys.executable)
    home = Path(environ.get("HOME", "/nonexistent"))
    pyenv = Path(environ.get("PYENV_ROOT", home / ".pyenv"))
    data = Path(environ.get("XDG_DATA_HOME", home / ".local/share"))
    yield from sorted(pyenv.glob("versions/*/bin/python"), reverse=True)
    yield from sorted(data.glob("uv/python/cpython-*/bin/python"), reverse=True)
    shims = pyenv / "shims"  # they are slow, and lead only to interpreters above
    path = os.pathsep.join(each for each in environ.get("PATH", os.defpath).split(os.pathsep) if Path(each) != shims)
    for minor in range(20, 5, -1):
        if found := shutil.which(f"python3.{minor}", path=path):
            yield Path(found)


def version_of(path: Path) -> str:
    """Return the version of an interpreter, such as "3.7.16"; "" if it does not run, or if it is older than 3.6, which
    the agent does not support."""
    code = "import sys; print('.'.join(map(str, sys.version_info[:3])) if sys.version_info >= (3, 6) else '')"
    return _printed(path, code)


def build_of(path: Path) -> str:
    """Return a text that distinguishes interpreters of the same version: path, compiler, time and options of the
    build."""
    details = "sys.version, sysconfig.get_platform(), sysconfig.get_config_var('CONFIG_ARGS')"
    return f"{path.resolve()} {_printed(path, f'import sys, sysconfig; print([{details}])')}"


def _printed(path: Path, code: str) -> str:
    """Return the output of `code` in an interpreter; "" if it fails or takes more than 20 s."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", code], capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
