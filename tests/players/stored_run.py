"""A run's directory as `sweep` leaves it, for the tests of commands that read only that directory."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.cli.results import write_result
from harness.flows.evidence import recipe
from harness.model import CellResult, CellVerdict, Lane, RunResult, Scalar, Scenario, Source, Trial, Variant
from harness.model.answers import Recipe
from harness.run.trial.payload import keep_inputs
from harness.store import RunDirectory, inputs
from harness.store.lookup import find_cell, open_run
from harness.store.plan_file import plan_to_json
from harness.store.saved_run import StoredRun
from tests.players import build
from tests.players.trials import facts_of

SCRIPT = '''"""Grow or crash, as it is told."""

import helper


def setup(keep, say=""):
    kept = []

    def step():
        kept.append(bytearray(helper.SIZE)) if keep else None

    return step


if __name__ == "__main__":
    raise SystemExit("the harness imports a scenario: this never ran")
'''
HELPER = "SIZE = 8192\n"
IDS = {"6.2.0": "sha256:" + "2" * 64, "6.3.0": "sha256:" + "3" * 64, "6.3.2": "sha256:" + "4" * 64}
SERIES = build.series("multidict", list(IDS))


def scenario(folder: Path, /, **fields: object) -> Scenario:
    """Write a real script, and a file next to it, into `folder`."""
    (folder / "grow.py").write_text(SCRIPT)
    (folder / "helper.py").write_text(HELPER)
    made = Scenario(
        name="grow",
        where=build.WHERE,
        script=folder / "grow.py",
        files=(folder / "helper.py",),
        environment=(("TF_FLAG", "1 $(touch x)"), ("API_TOKEN", "hush")),
        memory_bytes=1 << 30,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def trial(entry: CellResult, number: int) -> Trial:
    version = entry.cell.image.version
    made = build.trial(entry.cell.id, number, entry.verdict)
    crashed = made.end == "crash"
    return replace(
        made,
        message="crash in step 3 (/home/ada/x.py:3): https://ada:pw@mirror/simple" if crashed else "",
        failure=replace(made.failure, stacks='File "/root/.cache/x.py", line 3' if crashed else ""),
        image=replace(made.image, digest="sha256:" + "d" * 64, reference=IDS[version]),
        facts=facts_of(
            {
                "python": "3.11.2",
                "libc": "glibc 2.36",
                "packages": {
                    "multidict": version,
                    "pip": "23.0.1",
                    **({"six": "1.16.0"} if version != "6.2.0" else {}),
                },
                "libraries": ["libc.so.6", "libcufft.so.10.3" if version == "6.2.0" else "libcufft.so.11.0"],
                "environment": {"TF_FLAG": "1 $(touch x)", "NVIDIA_API_KEY": "nvapi-secretsecret"},
                "environment_names": ["API_TOKEN", "PATH"],
                "rlimits": {"stack": "67108864:67108864", "memlock": "65536:65536"},
            }
        ),
        fingerprint={"engine": "docker 27", "name": "lab-secret-7", "kernel": "6.1", "cpu": "EPYC", "cpus": 2},
    )


def leaking(version: str, _lane: Lane, _variant: Variant) -> CellVerdict:
    return build.leak(7.838) if version == "6.3.0" else build.flat()


def write(
    folder: Path,
    /,
    *,
    lane: Lane = build.HERE,
    judge: build.Judge = leaking,
    change: Callable[[RunResult], RunResult] = lambda result: result,
    params: tuple[tuple[str, Scalar], ...] = (("keep", True),),
    source: Source | None = None,
    **fields: object,
) -> Path:
    """Write `folder/reports/quickstart/<id>`, with a leak in the middle version of three. `source`: of all images."""
    images = tuple(replace(one, source=source or one.source) for one in SERIES.images)
    series = replace(SERIES, images=images)
    variant = Variant(scenario=scenario(folder, **fields), params=params)
    found = [
        build.finding(series, lane, variant, before="6.2.0", after="6.3.0"),
        build.finding(series, lane, variant, before="6.3.0", after="6.3.2", kind="first_fixed"),
    ]
    result = change(build.run([(series, [lane], [variant])], judge, findings=found))
    path = folder / "reports/quickstart/20250301T120000Z-1a2b"
    keeps = {"inputs": keep_inputs, "dockerfile": inputs.keep_dockerfile}
    write_judged(result, path, **{name: functools.partial(keep, directory=path) for name, keep in keeps.items()})
    for entry in result.cells:
        for number in range(1, entry.verdict.trials + 1):
            RunDirectory(path).write_trial(trial(entry, number), entry.cell)
    return path


def write_judged(result: RunResult, path: Path, **plan: Any) -> Path:
    """Write the directory of a run without its launches. `plan`: further arguments of `plan_to_json`."""
    (path / "trials").mkdir(parents=True)
    (path / "plan.json").write_text(json.dumps(plan_to_json(result.plan, **plan)))
    write_result(result, RunDirectory(path))
    return path


def opened(folder: Path, /, **given: Any) -> StoredRun:
    """Return the run that `write` writes."""
    return read_again(write(folder, **given))


def read_again(path: Path) -> StoredRun:
    return open_run(str(path), out=path.parents[1])


def recipe_of(run: StoredRun, *words: str) -> Recipe:
    """Return how to repeat a cell; without words, the bad one."""
    return recipe(run, find_cell(run, words or ("6.3.0",)))
