"""Runs the harness as a user does, and asks the engine what it left behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import docker
import pytest

from harness import cli
from tests.nightly import at_night
from tests.players.pages import browser, library  # noqa: F401 - fixtures of the tests of pages
from tests.waiting import until

ROOT = Path(__file__).parents[2]
LOCAL_BASE = "harness-base:bookworm"  # made by `make base`
ENGINES = ["process", pytest.param("docker", marks=pytest.mark.docker)]
DOCKER_AT_NIGHT = [
    "process",
    pytest.param("docker", marks=[pytest.mark.docker, at_night("the contract suite tries engines by day")]),
]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@dataclass
class Harness:
    """`python -m harness` in its own folder, with its own variables."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                "HARNESS_BASE": LOCAL_BASE,
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONWARNINGS": "error",
                **self.environ,
            },
        )
        self.processes.append(process)
        return process

    def run(self, *arguments: str, timeout_s: float = 300) -> Ended:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=timeout_s)
        assert "Traceback" not in err, err
        return Ended(process.returncode, out, err)

    def run_here(self, *arguments: str) -> Ended:
        """Like `run`, but in this process, which has imported the harness: quicker by a second of processor time."""
        out, err, before = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO(), Path.cwd()
        os.chdir(self.folder)
        try:
            with (
                mock.patch.dict(os.environ, {"HARNESS_BASE": LOCAL_BASE, **os.environ, **self.environ}),
                redirect_stdout(out),
                redirect_stderr(err),
            ):
                code = cli.run(list(arguments))
        finally:
            os.chdir(before)
        assert "Traceback" not in err.getvalue(), err.getvalue()
        out.seek(0)
        return Ended(code, out.read(), err.getvalue())

    def write(self, text: str, name: str = "matrix.yaml") -> str:
        (self.folder / name).write_text(text)
        return name

    def summary(self, matrix: str = "matrix") -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder / "reports" / matrix / "latest" / "summary.json").read_text())
        return loaded

    def trial_files(self, matrix: str = "matrix") -> list[Path]:
        return sorted((self.folder / "reports" / matrix).glob("[0-9]*/trials/[!.]*"))

    def wait_for_trials(self, count: int, *, timeout_s: float = 120) -> None:
        """Wait until `count` trials are in the journal."""
        assert until(lambda: len(self.trial_files()) >= count, seconds=timeout_s), "no trial in time"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.fixture
def our_containers() -> Iterator[Callable[[], list[str]]]:
    """Return our containers on the engine, in any state, as `name status`."""
    client = docker.from_env()

    def names() -> list[str]:
        found = client.containers.list(all=True, filters={"label": "harness.run"}, ignore_removed=True)
        return [f"{each.name} {each.status}" for each in found]

    yield names
    client.close()
