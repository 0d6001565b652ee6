"""Decides what the failure of a launch beside others is worth: they may have caused it, by memory, processors, ports or
files.

Such a failure accuses no version. It counts as infrastructure, and its cell is launched alone from then on. Once a
launch alone fails in the same way, the earlier failure was the version's own, and counts.
"""

from __future__ import annotations

from dataclasses import replace

from harness.model import Trial
from harness.run.hosts.beside import DOUBTED
from harness.run.scheduler import CellRun


def add_trial(run: CellRun, trial: Trial, *, doubtful: bool) -> list[Trial]:
    """Add a trial to its run. Return the earlier trials that count now because it failed in the same way, then the
    trial itself as it counts. `doubtful`: whether others ran beside it and may have caused what it shows.
    """
    if trial.beside and trial.end in DOUBTED:
        run.doubted.append(trial)
        trial = replace(trial, end="infrastructure", message=_message(trial))
    elif trial.beside and not trial.measured:
        run.alone = True
    run.alone = run.alone or bool(run.doubted) or doubtful
    failure = (trial.end, trial.signal)
    confirmed = [] if trial.beside else [doubted for doubted in run.doubted if (doubted.end, doubted.signal) == failure]
    for doubted in confirmed:
        run.doubted.remove(doubted)
        run.trials[doubted.number - 1] = doubted
    run.trials.append(trial)
    return [*confirmed, trial]


def _message(trial: Trial) -> str:
    others = f"{trial.beside} other launch{'es' if trial.beside > 1 else ''}"
    doubt = f"{trial.end} beside {others}, which may have caused it: it is launched again alone"
    return f"{trial.message}\n{doubt}".strip()
