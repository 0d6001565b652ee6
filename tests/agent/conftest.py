"""The interpreters on which the agent is tested: every CPython from 3.6 that this machine has.

`make test` runs all cases on FULL, and those marked `smoke` on the others, too; `make nightly` runs all cases on all.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.driver import AGENT
from tests.nightly import NIGHTLY

VERSIONS = tuple(f"3.{minor}" for minor in range(6, 16))
RUNNING = "{}.{}".format(*sys.version_info)
REQUIRED = os.environ.get("HARNESS_REQUIRE_PYTHONS", "").split()


def _find(version: str) -> str | None:
    if version == RUNNING:
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = sorted(root.glob(f"versions/{version}.*/bin/python"))
    return str(places[-1]) if places else shutil.which(f"python{version}")


def _works(python: str) -> bool:
    """Return whether an interpreter works: a shim of pyenv may be on the PATH without an interpreter behind it.

    It compiles the agent, so that the hundreds of agents under test need not.
    """
    compiles = [python, "-c", f"import compileall; compileall.compile_dir({str(AGENT)!r}, quiet=2)"]
    return subprocess.run(compiles, capture_output=True, check=False).returncode == 0


def interpreters() -> dict[str, str]:
    found = {version: python for version in VERSIONS if (python := _find(version)) and _works(python)}
    missing = sorted(set(REQUIRED) - set(found))
    if missing:
        raise pytest.UsageError(f"HARNESS_REQUIRE_PYTHONS: not on this machine: {', '.join(missing)}")
    return found


INTERPRETERS = interpreters()
OLDEST, NEWEST = next(iter(INTERPRETERS)), next(reversed(INTERPRETERS))
FULL = set(VERSIONS) if NIGHTLY else {OLDEST, NEWEST}  # those between differ less from both
# All faults on the oldest version, which differs most, and on the running one.
THOROUGH = set(VERSIONS) if NIGHTLY else {OLDEST, RUNNING}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_smoke = metafunc.definition.get_closest_marker("smoke") is not None
    for fixture, versions in (("python", set(VERSIONS) if is_smoke else FULL), ("thorough_python", THOROUGH)):
        if fixture in metafunc.fixturenames:
            chosen = {version: python for version, python in INTERPRETERS.items() if version in versions}
            metafunc.parametrize(fixture, chosen.values(), ids=chosen)
