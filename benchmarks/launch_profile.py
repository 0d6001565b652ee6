"""Where the time of one launch goes, on both engines: a quiet scenario of short steps, timed by the agent's messages.

    python -m benchmarks.launch_profile [--repeats 9] [--engines process docker] [--base python:3.11-slim-bookworm]

Prints the median milliseconds of each phase: until the engine has started the trial, until the agent says hello, until
setup and the first step are done, the steps with their looks, until `done`, and until everything is removed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.model import Host, Image, Install, Prepared, Scenario, Steps, Variant, Where
from harness.run import open_engine
from harness.run.engine import Engine, Exit, LaunchRequest, Session
from harness.run.trial.conversation import run_trial
from harness.run.trial.payload import pack

SCRIPT = '"""Nothing, a thousand times."""\n\n\ndef setup():\n    return lambda: None\n'
WHERE = Where(file="launch_profile", line=1, key="base")
PHASES = ("start", "agent", "setup", "steps", "end", "removal")
STEPS = Steps(first=500, budget=1000)


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


def main() -> None:
    options = arguments()
    print(f"{'ms':<10}" + "".join(f"{phase:>9}" for phase in (*PHASES, "all")))
    for name in options.engines:
        told = profile(name, base=options.base, repeats=options.repeats)
        each = [statistics.median(one[place] for one in told) for place in range(len(PHASES) + 1)]
        print(f"{name:<10}" + "".join(f"{1000 * value:9.0f}" for value in each), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--engines", nargs="+", choices=["process", "docker"], default=["process", "docker"])
    parser.add_argument("--base", default="python:3.11-slim-bookworm")
    return parser.parse_args()


def profile(name: str, *, base: str, repeats: int) -> list[list[float]]:
    """Return the seconds of each phase and of the whole launch, for each launch but the first."""
    engine = open_engine(Host(name="here", engine=name, gpus="none", where=WHERE), environ=os.environ, say=note)
    source = Install(base=base, python=None, packages=())
    try:
        prepared = engine.prepare(Image(series="base", version="1", source=source, where=WHERE), note)
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "quiet.py")
            script.write_text(SCRIPT)
            return [one_launch(engine, prepared, script) for _ in range(repeats + 1)][1:]
    finally:
        engine.close()


def one_launch(engine: Engine, prepared: Prepared, script: Path) -> list[float]:
    scenario = Scenario(name="quiet", where=WHERE, script=script, steps=STEPS)
    labels = {"harness.run": "profile", "harness.cell": "quiet", "harness.trial": "1"}
    request = LaunchRequest(
        prepared=prepared, scenario=scenario, payload=pack(Variant(scenario=scenario)), labels=labels
    )
    watched = Watched(engine=engine)
    done = run_trial(watched, request, cell_id="quiet")  # type: ignore[arg-type]
    assert done.end == "completed", done.message
    times = [watched.at[name] for name in ("asked", *PHASES)]
    spent = [after - before for before, after in itertools.pairwise(times)]
    return [*spent, times[-1] - times[0]]


def note(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
