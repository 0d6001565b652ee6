"""Decides how a launch counts that failed while others ran on the same host: their use of memory, processors, ports or
files may have caused the failure.

Such a failure counts as infrastructure at first, and its cell is launched alone from then on. If a launch alone fails
in the same way, the version caused the earlier failure too, which then counts against it.
"""

from __future__ import annotations

from dataclasses import replace

from harness.model import Trial
from harness.run.hosts.beside import DOUBTED
from harness.run.run_interfaces import CellRun


def add_trial(run: CellRun, trial: Trial, *, doubtful: bool) -> list[Trial]:
    """Add a trial to its run. Return the earlier failures that count now, because this trial failed in the same way
    alone, and then the trial itself, reclassified if necessary. `doubtful`: other launches may have caused what the
    trial shows.
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
    doubt = f"{trial.end} alongside {others}, which may have caused it: the cell is launched again alone"
    return f"{trial.message}\n{doubt}".strip()
