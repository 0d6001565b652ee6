"""Which interpreters the agent is tried on: every CPython from 3.6 that this machine has."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VERSIONS = tuple(f"3.{minor}" for minor in range(6, 14))
RUNNING = "{}.{}".format(*sys.version_info)
REQUIRED = os.environ.get("HARNESS_REQUIRE_PYTHONS", "").split()


def _find(version: str) -> str | None:
    if version == RUNNING:
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = sorted(root.glob(f"versions/{version}.*/bin/python"))
    return str(places[-1]) if places else shutil.which(f"python{version}")


def _works(python: str) -> bool:
    """A shim of pyenv may be on the PATH without an interpreter behind it."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def interpreters() -> dict[str, str]:
    found = {version: python for version in VERSIONS if (python := _find(version)) and _works(python)}
    missing = sorted(set(REQUIRED) - set(found))
    if missing:
        raise pytest.UsageError(f"HARNESS_REQUIRE_PYTHONS: not on this machine: {', '.join(missing)}")
    return found


INTERPRETERS = interpreters()
# All faults on the oldest one, which differs most, and on the one that is running; the core on all.
THOROUGH = {
    version: INTERPRETERS[version] for version in INTERPRETERS if version in (next(iter(INTERPRETERS)), RUNNING)
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "python" in metafunc.fixturenames:
        metafunc.parametrize("python", INTERPRETERS.values(), ids=INTERPRETERS)
    if "thorough_python" in metafunc.fixturenames:
        metafunc.parametrize("thorough_python", THOROUGH.values(), ids=THOROUGH)
