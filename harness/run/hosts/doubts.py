"""Failures of launches that ran beside others, which may have caused them: by memory, processors, ports or files.

Such a failure accuses no version. It counts as infrastructure, and its cell is launched alone from then on. Once a
launch alone fails in the same way, the failure beside others was the version's own, and counts.
"""

from __future__ import annotations

from dataclasses import replace

from harness.model import Trial
from harness.run.hosts.beside import DOUBTED
from harness.run.scheduler import CellRun


def settled(run: CellRun, trial: Trial, *, slows: bool) -> list[Trial]:
    """Add a trial to its run. Return the earlier trials that count now because it failed in the same way, and then the
    trial itself, as it counts. `slows`: whether it ran beside others and its steps became slower.
    """
    if trial.beside and trial.end in DOUBTED:
        run.doubted.append(trial)
        trial = replace(trial, end="infrastructure", message=_told(trial))
    elif trial.beside and not trial.measured:
        run.alone = True
    run.alone = run.alone or bool(run.doubted) or slows
    own = [] if trial.beside else [each for each in run.doubted if _is_same(each, trial)]
    for each in own:
        run.doubted.remove(each)
        run.trials[each.number - 1] = each
    run.trials.append(trial)
    return [*own, trial]


def _is_same(one: Trial, other: Trial) -> bool:
    return one.end == other.end and one.signal == other.signal


def _told(trial: Trial) -> str:
    others = f"{trial.beside} other launch{'es' if trial.beside > 1 else ''}"
    told = f"{trial.end} beside {others}, which may have caused it: it is launched again alone"
    return f"{trial.message}\n{told}".strip()
