"""What a trial costs compared with a bare `docker run` of the same steps.

    python benchmarks/trial_overhead.py [--steps 2000] [--repeats 7] [--base harness-base:bookworm]

Runs both alternately, so that a busy moment of the machine hits both, and prints the median wall times and their
ratio. The bound: a trial takes at most 1.15 times the bare run, plus 0.3 s. Exits with 1 if the bound is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness.model import Host, Image, Install, Prepared, Scenario, Steps, Variant, Where
from harness.run import open_engine
from harness.run.engine import Engine, LaunchRequest
from harness.run.trial.conversation import run_trial
from harness.run.trial.payload import pack

SCRIPT = '''"""Two milliseconds of arithmetic a step."""
def setup():
    return lambda: sum(range(100_000))
'''
BARE = "step = setup()\nfor _ in range({steps}): step()"
WHERE = Where(file="trial_overhead", line=1, key="base")


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "work.py"
        script.write_text(SCRIPT)
        engine = open_engine(Host(name="here", engine="docker", gpus="none", where=WHERE), environ=os.environ, say=note)
        try:
            image = Image(
                series="base", version="1", source=Install(base=options.base, python=None, packages=()), where=WHERE
            )
            prepared = engine.prepare(image, note)
            trials, bares = measure(
                lambda: trial(engine, prepared, script, options.steps),
                lambda: bare(options.base, options.steps),
                repeats=options.repeats,
            )
        finally:
            engine.close()
    return report(statistics.median(trials), statistics.median(bares))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--base", default="harness-base:bookworm")
    return parser.parse_args()


def note(text: str) -> None:
    print(text, file=sys.stderr)


def measure(first: Callable[[], None], second: Callable[[], None], *, repeats: int) -> tuple[list[float], list[float]]:
    """Return the wall seconds of the repeats of both, without a first run of each."""
    first()
    second()
    pairs = [(seconds(first), seconds(second)) for _ in range(repeats)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def seconds(action: Callable[[], None]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def trial(engine: Engine, prepared: Prepared, script: Path, steps: int) -> None:
    scenario = Scenario(name="work", where=WHERE, script=script, steps=Steps(first=steps, budget=steps))
    launch = LaunchRequest(
        prepared=prepared,
        scenario=scenario,
        payload=pack(Variant(scenario=scenario)),
        labels={"harness.run": "overhead", "harness.cell": "work", "harness.trial": "1"},
    )
    done = run_trial(engine, launch, cell_id="work")
    assert done.last_step == steps, done.message


def bare(base: str, steps: int) -> None:
    code = SCRIPT + BARE.format(steps=steps)
    subprocess.run(["docker", "run", "--rm", "--network=none", base, "python3", "-c", code], check=True)


def report(trial_s: float, bare_s: float) -> int:
    bound_s = 1.15 * bare_s + 0.3
    print(f"trial {trial_s:.2f} s, docker run {bare_s:.2f} s, ratio {trial_s / bare_s:.2f}, bound {bound_s:.2f} s")
    return 0 if trial_s <= bound_s else 1


if __name__ == "__main__":
    sys.exit(main())
