"""What a launch costs over a bare `docker run`."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.model import Host, Image, Install, Prepared, Scenario, Steps, Trial, Variant, Where
from harness.run import open_engine
from harness.run.engine import Engine, LaunchRequest
from harness.run.trial.conversation import Conversation, alone
from harness.run.trial.payload import pack

WHERE = Where(file="cost", line=1, key="base")
WORK = '"""Two milliseconds of arithmetic a step."""\ndef setup():\n    return lambda: sum(range(100_000))\n'
BARE = "step = setup()\nfor _ in range({steps}): step()"


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
    payload = pack(Variant(scenario=scenario))
    request = LaunchRequest(prepared=prepared, scenario=scenario, payload=payload, run="cost", cell_id="cost")
    done = alone(Conversation(launch=request).run(engine))
    assert done.end == "completed", done.message
    return done


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
