"""Tells which launches in the user's own folder still count: those since whose start the user changed no file of it.

What launches write is no change by the user: `FILE` of each run says what each launch made and changed there. A file
that was there before may also have been changed by the user while a launch ran, so that most launches must change it.
Files are compared by the time of their last change (`st_ctime_ns`), which nobody can set.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from harness.model import Cell, Trial
from harness.safe_files import read_regular

FILE = "folder.jsonl"
MOST_FILES = 50_000
MOST_S = 5.0
MOST_LOG_BYTES = 64 << 20
LOGS = (".log", ".out", ".err")
"""Ends of the names of files that are no part of a program unless they can be executed, as `a.out` can: a user may keep
what the harness prints in one."""

State = Mapping[str, int]
"""When each file of a folder was last changed, in ns since the epoch."""


def state_of(cell: Cell, *, out: Path) -> State | None:
    """Return the state of a cell's folder; None if looking at all of its files would take too long. What the harness
    writes (the runs in `out`, stdout, stderr), the matrix file, whose values are in the keys of trials, logs, and
    hidden folders and caches are left out."""
    folder, found = cell.folder, dict[str, int]()
    printed = (Path("/proc/self/fd/1"), Path("/proc/self/fd/2"))
    own = {_identity(path.stat()) for path in (out, Path(cell.variant.scenario.where.file), *printed) if path.exists()}
    waiting, ends_s = [folder], time.monotonic() + MOST_S
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:  # it may vanish, or be another user's
            for entry in entries:
                if len(found) > MOST_FILES or time.monotonic() > ends_s:
                    return None
                with suppress(OSError):
                    is_folder = entry.is_dir(follow_symlinks=False)
                    identity = _identity(details := entry.stat())
                    is_cache = is_folder and (entry.name[0] == "." or entry.name == "__pycache__")
                    is_log = entry.name.endswith(LOGS) and not details.st_mode & 0o111
                    if identity in own or is_cache or is_log:
                        continue
                    if is_folder:
                        waiting.append(entry.path)
                    else:
                        found[entry.path[len(folder) :].lstrip("/")] = details.st_ctime_ns
    return found if len(found) <= MOST_FILES else None


def _identity(details: os.stat_result) -> tuple[int, int]:
    return details.st_dev, details.st_ino


def line_of(cell: Cell, before: State | None, after: State | None) -> str:
    """Return the line of `FILE` for a launch that has just ended."""
    was, now = before or {}, after or {}
    made = [] if before is None else sorted(now.keys() - was.keys())
    changed = sorted(name for name, at in now.items() if was.get(name, at) != at)
    return json.dumps({"cell": cell.id, "ended_ns": time.time_ns(), "made": made, "changed": changed}) + "\n"


def still_valid(
    cell: Cell, known: Sequence[Trial], runs: Iterable[Path], *, now: State | None
) -> tuple[list[Trial], str]:
    """Return the trials since whose start only launches have changed the cell's folder, and why the others do not
    count, "" if all do. `runs`: all runs of the matrix; `now`: the state of the folder, as of `state_of`."""
    if now is None:
        size = f"has more than {MOST_FILES:,} files, or takes longer than {MOST_S:g} s to look through"
        return [], f"{cell.folder} {size}, so no change in it would be noticed"
    written = _written(runs)
    last = sorted(((at, name) for name, at in now.items() if at > written.get(name, 0)), reverse=True)
    valid = [trial for trial in known if not last or last[0][0] <= _began_ns(trial)]
    if len(valid) == len(known):
        return valid, ""
    since = [name for at, name in last if at > min(map(_began_ns, known))]
    more = f" (and {len(since) - 1:,} more)" if len(since) > 1 else ""
    return valid, f"{since[0]}{more} has changed since"


def _began_ns(trial: Trial) -> int:
    return int(datetime.fromisoformat(trial.started).timestamp() * 1e9)


def _written(runs: Iterable[Path]) -> Mapping[str, float]:
    """Return until when a change of a file was the launches' own, in ns, by the logs of runs: without end for a file
    that most launches change, of all or of one version; for another one that a launch made, until the last launch that
    changed it. A log that cannot be read is skipped."""
    until = dict[str, float]()
    launches, changed = Counter[str](), Counter[tuple[str, str]]()
    for run in sorted(runs):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            for line in read_regular(run / FILE, most_bytes=MOST_LOG_BYTES).splitlines():
                told = json.loads(line)
                launches.update((told["cell"], ""))
                changed.update((of, name) for of in (told["cell"], "") for name in told["changed"])
                own = [*told["made"], *(until.keys() & set(told["changed"]))]
                until |= dict.fromkeys(own, int(told["ended_ns"]))
    least = min(2, launches[""])
    always = {name for (of, name), times in changed.items() if times >= least and 2 * times > launches[of]}
    return {**until, **dict.fromkeys(always, math.inf)}
