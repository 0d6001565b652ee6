"""Collects the content of a bug report on a finding from a run's directory alone, for `harness issue`."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.flows.evidence.diff import Inspect, difference
from harness.flows.evidence.repro import recipe
from harness.judge.comparison.new_log_lines import new_lines
from harness.model import BAD, GOOD, Build, CellResult, Finding, Source, Trial
from harness.model.answers.evidence import Issue, Recipe
from harness.run.trial.payload import TOLD_ENVIRONMENT
from harness.store import inputs
from harness.store.lookup import bad_cell, row_of, telling_trial
from harness.store.saved_narrowed import read_narrowed
from harness.store.saved_run import StoredRun

HOST_FIELDS = ("engine", "kernel", "architecture", "cpu", "cpus", "memory_bytes")
"""Fields of a host's fingerprint, without its name."""
GPU_FIELDS = ("name", "driver", "cuda", "memory_mib", "compute_capability")
"""Fields of a GPU, without its serial number."""


def issue(run: StoredRun, finding: Finding, *, inspect: Inspect | None) -> Issue:
    """Return the content of a bug report on a finding. Of the image's environment it holds only the variables that a
    trial may report.

    Raises UsageError if the finding's bad version is not in the run.
    """
    bad, number = run.cells[bad_cell(run, finding).id], run.findings.index(finding) + 1
    history = tuple(run.cells[cell.id] for cell in row_of(run, finding))
    trial, good = telling_trial(bad.trials), _good(history, finding)
    made, problem = _recipe(run, bad)
    return Issue(
        finding=finding,
        history=history,
        bad=bad,
        good=good,
        trial=trial,
        recipe=made,
        difference=None if finding.before is None else difference(run, finding, inspect=inspect),
        elsewhere=_elsewhere(run, bad),
        causes=tuple(one.sentence for one in run.told.causes if number in one.findings),
        system={} if trial is None else _system(trial),
        narrowed=tuple(one for one in read_narrowed(run.path) if one.finding == number),
        problem=problem,
        new_lines=() if good is None else tuple(one.text for one in new_lines([good.trials, bad.trials])),
        dockerfile=_dockerfile(run, bad.cell.image.source),
    )


def _good(history: Sequence[CellResult], finding: Finding) -> CellResult | None:
    """Return the good side of a finding; if it has none, the oldest good version of the history, or None."""
    if finding.kind in ("bad_from_start", "worse"):
        return next((one for one in history if one.verdict.verdict in GOOD), None)
    version = finding.after if finding.kind == "first_fixed" else finding.before
    return next((one for one in history if one.cell.image.version == version), None)


def _recipe(run: StoredRun, bad: CellResult) -> tuple[Recipe | None, str]:
    try:
        return recipe(run, bad.cell), ""
    except UsageError as error:
        return None, str(error)


def _dockerfile(run: StoredRun, source: Source) -> str:
    """Return the Dockerfile as the run kept it when it began; "" for a run that kept none."""
    name = run.dockerfiles.get(str(source.context), "") if isinstance(source, Build) else ""
    found, _ = inputs.read_inputs({"Dockerfile": name}, run.path)
    return found.get("Dockerfile", b"").decode(errors="replace")


def _elsewhere(run: StoredRun, bad: CellResult) -> tuple[CellResult, ...]:
    """Return the cells of the same image with other params, scenarios or lanes that have a verdict."""
    image = (bad.cell.image.series, bad.cell.image.version)
    return tuple(
        one
        for one in run.cells.values()
        if (one.cell.image.series, one.cell.image.version) == image
        and one.cell_id != bad.cell_id
        and one.verdict.verdict in BAD | GOOD
    )


def _system(trial: Trial) -> Mapping[str, Any]:
    """Return the facts about the system that a bug report shows, by name; unknown ones are left out."""
    facts, seen = trial.facts, trial.fingerprint
    environment = facts.get("environment")
    shown = environment.items() if isinstance(environment, Mapping) else ()
    return {
        **{name: seen[name] for name in HOST_FIELDS if seen.get(name) is not None},
        **{name: facts[name] for name in ("python", "implementation", "libc", "huge_pages") if facts.get(name)},
        "gpus": [{name: card[name] for name in GPU_FIELDS if card.get(name) is not None} for card in trial.cards],
        "environment": {str(name): str(value) for name, value in shown if _is_told(str(name))},
        "packages": facts.get("packages") if isinstance(facts.get("packages"), Mapping) else {},
        "libraries": facts.get("libraries") if isinstance(facts.get("libraries"), list) else [],
    }


def _is_told(name: str) -> bool:
    """Return whether a bug report may show this variable: an image may have sent more than was asked for."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in TOLD_ENVIRONMENT)
