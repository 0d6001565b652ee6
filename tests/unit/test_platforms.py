"""The harness on a system other than Linux: what can work there works, and everything else is an error of one line.

The tests run on Linux without what Windows lacks: modules are hidden, and names are deleted.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import COMMANDS, run
from tests.players import stored_run

LACKS = """
import os, signal, sys
import docker, paramiko, psutil, resource, subprocess, tempfile  # theirs to arrange
for name in ("fcntl", "resource"):
    sys.modules[name] = None
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK"):
    delattr(os, name)
del signal.SIGHUP
"""
ALL = """
import importlib, pkgutil, harness
for found in pkgutil.walk_packages(harness.__path__, "harness."):
    if not found.name.startswith("harness.agent") and not found.name.endswith((".inside", ".in_image", "__main__")):
        importlib.import_module(found.name)
"""
WITHOUT_LOCKS = "import sys, psutil; sys.modules.update(fcntl=None, resource=None)\n"


def python(text: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", text, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=folder)


def matrix_in(folder: Path) -> None:
    (folder / "one.py").write_text("def setup():\n    return int\n")
    (folder / "m.yaml").write_text(
        "version: 1\nseries: {a: {install: ['six=={version}'], versions: ['1.16.0']}}\n"
        "hosts: {here: {engine: process}}\nscenarios: {one: {script: one.py}}\n"
    )


def test_every_part_can_be_imported_where_windows_lacks_something(tmp_path: Path) -> None:
    asked = f"from harness.cli import run\nfor name in {list(COMMANDS)}: assert run([name, '--help']) == 0, name"
    done = python(LACKS + ALL + asked, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]


def test_without_locks_what_was_measured_elsewhere_can_be_read_and_a_sweep_is_one_line(tmp_path: Path) -> None:
    stored_run.write(tmp_path)
    matrix_in(tmp_path)
    (tmp_path / "trace.csv").write_text("step,rss_kib\n" + "".join(f"{n},{1000 + 8 * n}\n" for n in range(1, 400)))
    asked = [["report", "latest"], ["runs"], ["history"], ["publish", "--out", "site"], ["judge", "trace.csv"]]
    called = f"{WITHOUT_LOCKS}from harness.cli import run\nfor words in {asked}: assert run(words) in (0, 1), words\n"
    called += "print('-- sweep', flush=True)\nassert run(['sweep', 'm.yaml']) == 3"
    done = python(called, folder=tmp_path)  # in one process, because importing takes most of the time
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "site" / "index.html").is_file()
    told = "this system has no file locks, which a run needs: run it on Linux or macOS, or in WSL"
    assert told in " ".join(done.stdout.partition("-- sweep")[2].split())


def test_macos_is_told_that_the_process_engine_needs_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    matrix_in(tmp_path)
    assert run(["sweep", str(tmp_path / "m.yaml"), "--out", str(tmp_path / "reports")]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "engine: process needs Linux, but this is Darwin; use engine: docker" in said
