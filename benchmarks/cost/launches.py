"""What a launch costs: its phases, its overhead over a bare `docker run`, and how long quiet launches are."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.model import Host, Image, Install, Prepared, Scenario, Steps, Trial, Variant, Where
from harness.run import open_engine
from harness.run.engine import Engine, Exit, LaunchRequest, Session
from harness.run.trial.conversation import Conversation, alone
from harness.run.trial.payload import pack

WHERE = Where(file="cost", line=1, key="base")
ROOT = Path(__file__).parents[2]
NOTHING = '"""Nothing."""\n\n\ndef setup():\n    return lambda: None\n'
WORK = '"""Two milliseconds of arithmetic a step."""\ndef setup():\n    return lambda: sum(range(100_000))\n'
BARE = "step = setup()\nfor _ in range({steps}): step()"
PHASES = ("start", "agent", "setup", "steps", "end", "removal")
LENGTH_TRIALS, LEAK_KIB = 8, 24
LENGTH = f"""\
version: 1
series:
  six: {{install: ["six=={{version}}"], versions: ["1.16.0"]}}
hosts:
  here: {{engine: process}}
scenarios:
  quiet: {{script: {ROOT}/scenarios/planted.py, params: {{work_us: 1000, noise_kib: [0, 256]}}}}
  leak: {{script: {ROOT}/scenarios/planted.py, params: {{fault: leak, bytes: {LEAK_KIB * 1024}, work_us: 500}}}}
trials: {{least: {LENGTH_TRIALS}, most: {LENGTH_TRIALS}}}
"""


def note(text: str) -> None:
    print(text, file=sys.stderr)


@contextlib.contextmanager
def ready(engine: str, *, base: str, script: str) -> Iterator[tuple[Engine, Prepared, Path]]:
    """Yield an engine with its base image, and the file of a script."""
    host = Host(name="here", engine=engine, gpus="none", where=WHERE)
    source = Install(base=base, python=None, packages=())
    with (
        contextlib.closing(open_engine(host, environ=os.environ, say=note)) as opened,
        tempfile.TemporaryDirectory() as folder,
    ):
        path = Path(folder, "script.py")
        path.write_text(script)
        yield opened, opened.prepare(Image(series="base", version="1", source=source, where=WHERE), note), path


def launched(engine: Engine, prepared: Prepared, script: Path, steps: Steps) -> Trial:
    """Launch a script once, and return the trial."""
    scenario = Scenario(name="cost", where=WHERE, script=script, steps=steps)
    labels = {"harness.run": "cost", "harness.cell": "cost", "harness.trial": "1"}
    payload = pack(Variant(scenario=scenario))
    request = LaunchRequest(prepared=prepared, scenario=scenario, payload=payload, labels=labels)
    done = alone(Conversation(launch=request, cell_id="cost").run(engine))
    assert done.end == "completed", done.message
    return done


@dataclass(kw_only=True)
class Watched:
    """An engine's launcher and session in one, which records when each message arrives."""

    engine: Engine
    session: Session | None = None
    at: dict[str, float] = field(default_factory=dict)

    @property
    def facts(self) -> object:
        return self.engine.facts

    @contextlib.contextmanager
    def launch(self, launch: LaunchRequest) -> Iterator[Session]:
        self.at = {"asked": time.perf_counter()}
        with self.engine.launch(launch) as self.session:
            self.at["start"] = time.perf_counter()
            yield self
        self.at["removal"] = time.perf_counter()

    def send(self, data: bytes) -> None:
        assert self.session is not None
        self.session.send(data)

    def receive(self, timeout_s: float) -> bytes | None:
        assert self.session is not None
        data = self.session.receive(timeout_s)
        for name, mark in (("agent", b'"hello"'), ("setup", b'"ready"'), ("end", b'"done"')):
            if data and mark in data:
                self.at.setdefault(name, time.perf_counter())
        if data and b'"last": true' in data:
            self.at["steps"] = time.perf_counter()
        return data

    def exit(self) -> Exit:
        assert self.session is not None
        return self.session.exit()


def launch(repeats: int = 9, engines: str = "process docker", base: str = "python:3.11-slim-bookworm") -> bool:
    """Measure where the time of a launch of a quiet scenario of short steps goes, by the agent's messages.

    Prints the median milliseconds of each phase: until the engine has started the trial, until the agent says hello,
    until setup and the first step are done, the steps with their looks, until `done`, and until everything is removed.
    """
    print(f"{'ms':<10}" + "".join(f"{phase:>9}" for phase in (*PHASES, "all")))
    for name in engines.split():
        with ready(name, base=base, script=NOTHING) as (engine, prepared, script):
            told = [_phases(engine, prepared, script) for _ in range(repeats + 1)][1:]
        each = [statistics.median(one[place] for one in told) for place in range(len(PHASES) + 1)]
        print(f"{name:<10}" + "".join(f"{1000 * value:9.0f}" for value in each), flush=True)
    return True


def _phases(engine: Engine, prepared: Prepared, script: Path) -> list[float]:
    """Return the seconds of each phase and of the whole launch."""
    watched = Watched(engine=engine)
    launched(watched, prepared, script, Steps(first=500, budget=1000))  # type: ignore[arg-type]
    times = [watched.at[name] for name in ("asked", *PHASES)]
    return [*(after - before for before, after in itertools.pairwise(times)), times[-1] - times[0]]


def trial(steps: int = 2000, repeats: int = 7, base: str = "harness-base:bookworm") -> bool:
    """Compare a trial with a bare `docker run` of the same steps: at most 1.15 times its time, plus 0.3 s.

    Both alternate, so that a busy moment of the machine hits both. Prints the median wall times and their ratio.
    """
    command = ["docker", "run", "--rm", "--network=none", base, "python3", "-c", WORK + BARE.format(steps=steps)]
    with ready("docker", base=base, script=WORK) as (engine, prepared, script):
        pairs = [
            (
                seconds(lambda: launched(engine, prepared, script, Steps(first=steps, budget=steps))),
                seconds(lambda: subprocess.run(command, check=True)),
            )
            for _ in range(repeats + 1)
        ]
    trial_s, bare_s = (statistics.median(pair[place] for pair in pairs[1:]) for place in (0, 1))
    bound_s = 1.15 * bare_s + 0.3
    print(f"trial {trial_s:.2f} s, docker run {bare_s:.2f} s, ratio {trial_s / bare_s:.2f}, bound {bound_s:.2f} s")
    return trial_s <= bound_s


def seconds(action: Callable[[], object]) -> float:
    """Return the wall seconds of an action."""
    begun_s = time.perf_counter()
    action()
    return time.perf_counter() - begun_s


def length() -> bool:
    """Measure how long quiet trials are, and how accurate the rate of a leak of 24 KiB a step is.

    Real sweeps on the process engine: prints the median steps of quiet trials after the first of a cell, which runs the
    whole budget; and the trials that call the leak one within the budget of 4,000, with the error of its rate.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "m.yaml").write_text(LENGTH)
        command = [sys.executable, "-m", "harness", "sweep", "m.yaml"]
        subprocess.run(command, cwd=folder, check=False, capture_output=True)
        run = Path(folder) / "reports/m/latest"
        summary = json.loads((run / "summary.json").read_text())
        trials = [json.loads(path.read_text()) for path in (run / "trials").glob("*.json")]
    quiet = [one for one in trials if one["cell"]["scenario"] == "quiet"]
    first = [one["last_step"] for one in quiet if one["number"] == 1]
    later = [one["last_step"] for one in quiet if one["number"] != 1]
    print(f"quiet trials: the first of a cell runs {statistics.median(first):.0f} steps, ", end="")
    print(f"a later one {statistics.median(later):.0f} at median (of {len(later)}; most {max(later)})")
    (leak,) = [cell for cell in summary["cells"] if cell["scenario"] == "leak"]
    print(f"leak of {LEAK_KIB} KiB a step: verdict {leak['verdict']} in {leak['trials']} trials, ", end="")
    print(f"rate {leak['rate_kib_per_step']:.3f} KiB a step, {leak['rate_kib_per_step'] / LEAK_KIB:.4f} of the truth")
    return True
