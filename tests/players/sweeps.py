"""Sweeps over engines whose images are empty environments, and which fail where a test says so."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, selected, sweep
from harness.model import Host, Image, Install, Prepared, RunResult, SearchMode
from harness.report.terminal.progress import plain_progress
from harness.run.engine import LaunchRequest, Session
from harness.run.process.engine import ProcessEngine

MEMORY_ALONE = (
    "{step_time: none, tail: none, late_step_time: none, cpu_time: none, peak_memory: none, setup_time: none, "
    "first_step: none, output: none}"
)
"""Limits for empty steps: on a busy machine one of them may take ten times as long as another."""


MATRIX = """\
version: 1
series: {s: {install: ["x=={version}"], versions: ["1", "2"], environment: {PLANTED_VERSION: "{version}"}}}
hosts:
  one: {engine: process}
  two: {engine: process}
scenarios:
  quiet:
    script: quiet.py
    steps: {first: 100, budget: 200}
    limits: LIMITS
trials: {least: 2, most: 3}
""".replace("LIMITS", MEMORY_ALONE)


QUIET = '"""Nothing."""\n\n\ndef setup():\n    return lambda: None\n'


EMPTY = Install(base="", python=None, packages=())


class Engine(ProcessEngine):
    """An engine on which every image is an empty environment; `fail` is called before each launch and image, and may
    raise.
    """

    def __init__(self, host: Host, fail: Callable[[str, str, int], None]) -> None:
        super().__init__(host, environ=os.environ)
        self.host, self.fail, self.launches, self.closed = host.name, fail, 0, False
        self.empty: Prepared | None = None  # to prepare it anew starts the interpreter, which takes as long as a trial

    def prepare(self, image: Image, say: Callable[[str], None]) -> Prepared:
        self.fail(self.host, f"image {image.version}", 0)
        if self.empty is None or not self.holds(self.empty):
            self.empty = super().prepare(replace(image, source=EMPTY), say)
        return replace(self.empty, image=image, digest=f"sha256:{image.version}")

    def look(self, image: Image, say: Callable[[str], None]) -> Prepared | None:
        asked = replace(image, source=EMPTY)
        if self.empty is None or not self.holds(self.empty):
            return super().look(asked, say)
        return replace(self.empty, image=asked)

    def launch(self, launch: LaunchRequest) -> AbstractContextManager[Session]:
        self.launches += 1
        self.fail(self.host, f"launch {launch.prepared.image.version}", self.launches)
        return super().launch(launch)

    def close(self) -> None:
        self.closed = True
        super().close()


def run(
    folder: Path,
    fail: Callable[[str, str, int], None],
    scenario: str = QUIET,
    *,
    matrix: str = MATRIX,
    search: SearchMode = "full",
    decide: bool = False,
    engine: type[Engine] = Engine,
) -> RunResult:
    (folder / "quiet.py").write_text(scenario)
    (folder / "matrix.yaml").write_text(matrix)
    options = SweepOptions(out=folder / "reports", seed=1, search=search, decide=decide)
    plan = selected(folder / "matrix.yaml", options, {**os.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"})

    opened: list[Engine] = []

    def open_engine(host: Host, **_: Any) -> Engine:
        opened.append(engine(host, fail))
        return opened[-1]

    own = folder / "tmp"  # with its own lease: no wait for other sweeps on this machine
    own.mkdir(exist_ok=True)
    with plain_progress(sys.stderr) as watching, mock.patch.object(tempfile, "tempdir", str(own)):
        context = RunContext(environ=os.environ, progress=watching, stopped=threading.Event(), open_engine=open_engine)
        try:
            return sweep(plan, options, context)[0]
        finally:
            assert opened, "no engine was opened"
            assert all(each.closed for each in opened), "a connection is left open"


def nothing(host: str, what: str, number: int) -> None:
    """Do not fail."""


LEAKS = """\
import os

VERSION, kept = int(os.environ["PLANTED_VERSION"]), []


def setup():
    return lambda: kept.append(bytearray(64 * 1024)) if %s <= VERSION < %s else None
"""


SQUARE = """\
version: 1
series: {s: {install: ["x=={version}"], versions: ["1", "2"], environment: {PLANTED_VERSION: "{version}"}}}
hosts:
  one: {engine: process}
  two: {engine: process}
scenarios: {quiet: {script: quiet.py, steps: {first: 100, budget: 400}, limits: LIMITS}}
exclude: [{series: s, image: "1", host: two, why: "cannot run there"}, {series: s, image: "2", host: one, why: "slow"}]
trials: {least: 2, most: 4}
""".replace("LIMITS", MEMORY_ALONE)
