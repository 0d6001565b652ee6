"""What the agent costs the scenario that it measures, as ratios within one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.model import Scenario, Variant, Where
from harness.run.engine import pieces_of
from harness.run.trial.payload import pack

HERE = Where(file="agent_cost", line=0, key="scenario")
STEP = """
    import array
    import time

    GAPS_S = array.array("d")

    def setup(work_s):
        GAPS_S.frombytes(bytes(8 * STEPS))
        clock, made, ended = time.perf_counter, 0, time.perf_counter()

        def step():
            nonlocal made, ended
            began = clock()
            GAPS_S[made] = began - ended
            made += 1
            while work_s and clock() < began + work_s:
                pass
            ended = clock()
        return step

    def teardown():
        usual = sorted(GAPS_S)[:int(0.99 * len(GAPS_S))]
        print(sum(usual) / len(usual))
"""
SHORT = """
    def setup(turns):
        turns = range(turns)

        def step():
            for _ in turns:
                pass
        return step
"""
PROGRAM = """
import array
import time

GAPS_S = array.array("d", bytes(8 * STEPS))
made, clock, ended = 0, time.perf_counter, time.perf_counter()

def one():
    global made, ended
    GAPS_S[made] = clock() - ended
    made += 1
    ended = clock()

for _ in range(STEPS):
    one()
usual = sorted(GAPS_S)[:int(0.99 * len(GAPS_S))]
print(f"{sum(usual) / len(usual)}\\n", end="")
"""
RANKS = f"""
import os
import sys

ranks = [1]
while ranks[-1] and len(ranks) < 4:
    ranks.append(os.fork())
{PROGRAM}
sys.stdout.flush()
if not ranks[-1]:
    os._exit(0)
for _ in ranks[1:]:
    os.wait()
"""
WITH_WORKERS = """
    import multiprocessing
    import time

    WORKERS = [multiprocessing.Process(target=time.sleep, args=(1000,), daemon=True) for _ in range(10)]
    for worker in WORKERS:
        worker.start()
"""
PLAIN = """
import sys, time
sys.path.insert(0, sys.argv[1])
import short
clock, steps, step, took_s = time.perf_counter, range(100), short.setup(int(sys.argv[2])), []
for _ in range(500):  # short loops: another process disturbs only a few of them
    began = clock()
    for _ in steps:
        step()
    looped = clock()
    for _ in steps:
        pass
    took_s.append((looped - began - (clock() - looped)) / len(steps))
print(sorted(took_s)[len(took_s) // 2])
"""
TURNS = (60, 160, 300, 700, 1300)
WARM_UP_STEPS = 5000
TRIALS = 3


def trial(python: str, text: str, *, steps: int, **params: float) -> list[dict[str, Any]]:
    """Run one trial of the script `text`, and return all messages of the agent."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "busy.py")
        script.write_text(textwrap.dedent(text))
        scenario = Scenario(name="busy", where=HERE, script=script)
        if "def step" not in text:
            scenario = Scenario(name="busy", where=HERE, program=script, steps_are="__main__:one")
        variant = Variant(scenario=scenario, params=tuple(params.items()))
        payload = pack(variant, extras={"looks": [steps]})
        root = Path(folder, "root")
        for name, content in payload.contents.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(pieces_of(content)))
        command = [python, "-B", str(root / "start.py")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
            assert agent.stdout is not None
            return list(messages(agent.stdout.read(), marker=str(payload.job["marker"])))


def program_trial(python: str, *, steps: int, text: str = PROGRAM) -> list[dict[str, Any]]:
    """Run a program of empty steps that ends by itself, before its budget."""
    return trial(python, text.replace("STEPS", str(steps)), steps=steps + 1)


def busy_trial(python: str, *, work_s: float, steps: int, more: str = "") -> list[dict[str, Any]]:
    return trial(python, more + STEP.replace("STEPS", str(steps)), steps=steps, work_s=work_s)


def plain_s(python: str, turns: int) -> float:
    """Return the duration of a step in a loop without the agent."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "short.py").write_text(textwrap.dedent(SHORT))
        command = [python, "-c", PLAIN, folder, str(turns)]
        return float(subprocess.run(command, capture_output=True, check=True).stdout)


def measured_s(python: str, turns: int) -> float:
    """Return the median duration of a step as the agent measures it; the smallest of several trials."""
    told = [trial(python, SHORT, steps=4000, turns=turns) for _ in range(TRIALS)]
    return min(statistics.median(column(each, "step_s")[1000:]) for each in told)


def messages(output: bytes, *, marker: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        if line.startswith(marker.encode()):
            yield json.loads(line[len(marker) :])


def column(told: list[dict[str, Any]], name: str) -> list[float]:
    return [value for message in told if message["type"] == "samples" for value in message["columns"][name]]


def own_time_s(told: list[dict[str, Any]]) -> float:
    """Return the mean time between the end of a step and the start of the next, as the scenario sees it.

    The slowest 1 % are left out: there other processes of the machine ran. Of several ranks, the slowest counts.
    """
    return max(map(float, told[-1]["output_tail"].split()))


def growth_bytes_per_step(told: list[dict[str, Any]]) -> float:
    rss_kib = column(told, "rss_kib")
    return (rss_kib[-1] - rss_kib[WARM_UP_STEPS]) * 1024 / (len(rss_kib) - WARM_UP_STEPS)


def figures(python: str) -> dict[str, float]:
    """Return all figures: times are the smallest of several trials (other load only adds), growth is the largest."""
    nothing = [busy_trial(python, work_s=0.0, steps=100_000) for _ in range(TRIALS)]
    ranks = [program_trial(python, steps=100_000, text=RANKS) for _ in range(TRIALS)]
    programs = [program_trial(python, steps=100_000) for _ in range(TRIALS)]
    busy, beside_ten = (
        [busy_trial(python, work_s=0.001, steps=2000, more=more) for _ in range(TRIALS)] for more in ("", WITH_WORKERS)
    )
    return {
        "own time on a step of nothing, µs": min(map(own_time_s, nothing)) * 1e6,
        "of it, in an unmodified program, µs": min(map(own_time_s, programs)) * 1e6,
        "of it, in four ranks, µs": min(map(own_time_s, ranks)) * 1e6,
        "share of a 1 ms step, %": min(map(own_time_s, busy)) / 0.001 * 100,
        "of it, with ten workers, %": min(map(own_time_s, beside_ten)) / 0.001 * 100,
        "growth over 100,000 steps, B/step": max(map(growth_bytes_per_step, nothing)),
    }


def agent(python: str = sys.executable) -> bool:
    """Measure the agent's own time on an empty step, in a script and in an unmodified program; its share of a step of
    1 ms, also with ten workers; how much the measured process grows in 100,000 empty steps; and the measured durations
    of steps of 0.3 to 10 µs, next to those in a plain loop.

    The agent runs as in a container: two processes, all probes. `--python` is the interpreter that runs it.
    """
    for name, value in figures(python).items():
        print(f"{name:<38}{value:8.2f}")
    for turns in TURNS:
        plain, measured = plain_s(python, turns), measured_s(python, turns)
        print(f"a step of {plain * 1e6:5.2f} µs is measured as {measured * 1e6:5.2f} µs")
    return True
