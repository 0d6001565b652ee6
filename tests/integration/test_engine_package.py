"""An engine of a user's own package, which is installed from a folder, as CONTRIBUTING.md explains."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
import uv

from harness.store.trial_json import read_trial
from tests.integration.conftest import ROOT, Harness
from tests.players import local_engine

PROJECT = """\
[project]
name = "my-package"
version = "1.0"

{entry_point}
[build-system]
requires = ["uv_build"]
build-backend = "uv_build"
"""
MATRIX = """\
version: 1
series:
  psutil: {{install: ["psutil=={{version}}"], versions: ["{version}"]}}
hosts:
  mine: {{engine: local}}
scenarios:
  imports: {{script: imports.py, steps: {{first: 64, budget: 64}}}}
trials: {{least: 1, most: 1}}
"""


@pytest.fixture
def installed(harness: Harness) -> Harness:
    """Return a harness beside which the package is installed, without a network."""
    project, target = harness.folder / "project", harness.folder / "site-packages"
    source = project / "src" / "my_package"
    source.mkdir(parents=True)
    (source / "__init__.py").touch()
    (source / "local_engine.py").write_text(Path(local_engine.__file__).read_text())
    told = (ROOT / "CONTRIBUTING.md").read_text()
    entry_point = textwrap.dedent(f"    {told[told.index('[project.entry-points.') :].partition('```')[0]}")
    (project / "pyproject.toml").write_text(PROJECT.format(entry_point=entry_point))
    install = [uv.find_uv_bin(), "pip", "install", "--offline", "--no-deps", "--quiet", "--target", target, project]
    environ = {**os.environ, "UV_CACHE_DIR": str(harness.folder / "cache")}
    subprocess.run(install, check=True, timeout=60, env=environ)
    harness.environ["PYTHONPATH"] = f"{ROOT}:{target}"
    return harness


def test_a_sweep_runs_on_the_engine_of_an_installed_package(installed: Harness) -> None:
    installed.write("import psutil\n\n\ndef setup():\n    return lambda: psutil.pid_exists(1)\n", "imports.py")
    matrix = installed.write(MATRIX.format(version=importlib.metadata.version("psutil")))
    ended = installed.run("sweep", matrix)
    assert ended.code == 0, ended.err + ended.out
    (cell,) = installed.summary()["cells"]
    assert (cell["verdict"], cell["trials"]) == ("flat", 1)
    (trial,) = installed.trial_files()
    assert read_trial(trial).fingerprint["engine"] == "local"


def test_without_the_package_its_engine_is_unknown(harness: Harness) -> None:
    ended = harness.run("sweep", harness.write(MATRIX.format(version="1.0")))
    assert ended.code == 2
    assert re.search(r"unknown engine 'local'; allowed: docker, process, (\w+, )*slurm, ", ended.err)
