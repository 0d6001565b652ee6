"""Makes one trial of a launch on several nodes. Each node has an agent of its own, which measures the ranks there, and
a conversation of its own; the first node's decides how many steps the launch makes.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from harness.model import Floats, Trace, Trial
from harness.model.measured import RankFacts
from harness.run.engine import Session

LEAVE_S = 1.0
"""Seconds after the first end on any node, after which the agents of the others are asked to end."""
GONE_S = 30.0
"""Seconds after the first end, after which a node that has not told its own counts as lost."""
CONSEQUENCE_S = 1.0
"""If two nodes fail within this many seconds, nobody knows which of them failed first and caused the other's end."""
LOST = re.compile(r"[Cc]onnection|[Bb]roken pipe|closed by peer|EOFError")
"""The words in the message of a rank that failed because it lost another one; such a rank is named last."""
LEAST_SHARE = 0.9
"""Smallest share of the first node's rows that each other one must have, so that all of them were looked at."""
OF_MEMORY = ("rss_", "heap_", "blocks", "gpu_pool_", "gpu_process_", "gpu_kib")
"""The beginning of the names of columns, and of figures of a look, that come from the node where they grow most."""

Cut = Callable[[], bool]
Hold = Callable[[Session, Cut], tuple[Trial, float]]
"""Holds a conversation; returns the trial, and how many seconds before its end a rank had failed."""


@dataclass(kw_only=True)
class Nodes:
    """The nodes of one launch, by their numbers, from 0. `cancelled`: whether the sweep is interrupted; `failed`,
    `ended`: when a rank there failed, and when the node told its end (time.monotonic); `asked`: the nodes whose agents
    were asked to end."""

    names: Sequence[str]
    cancelled: Cut
    trials: dict[int, Trial] = field(default_factory=dict)
    failed: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)

    def cut(self, number: int, session: Session) -> bool:
        """Return whether the conversation with a node must end now. Once any node has ended, ask its agent to end."""
        since_s = time.monotonic() - min(self.ended.values(), default=time.monotonic())
        if since_s > LEAVE_S and number not in self.asked:
            self.asked.add(number)
            session.send(b'{"leave": true}\n')
        return self.cancelled() or since_s > GONE_S

    def note(self, number: int, trial: Trial, failed_ago_s: float) -> None:
        now_s = time.monotonic()
        self.trials[number], self.failed[number], self.ended[number] = trial, now_s - failed_ago_s, now_s

    def joined(self) -> Trial:
        """Return the trial of the launch, which ends as it did on the node that failed first. If several may have been
        the first, the message tells the ends of all of these."""
        first = self.trials[0]
        trials = [self.trials[number] for number in sorted(self.trials)]
        if self.cancelled() or len(trials) < 2:
            return first
        told = {number for number, trial in self.trials.items() if trial.end != "interrupted"}
        bad = [number for number in told if not self.trials[number].ended_well]
        gone = [name for number, name in enumerate(self.names) if number not in told]
        if first.ended_well:
            bad = [number for number in bad if self.failed[number] < self.ended[0] - CONSEQUENCE_S]
        joined = replace(
            first,
            trace=_joined([trial.trace for trial in trials]),
            peak_rss_kib=max((trial.peak_rss_kib or 0.0 for trial in trials), default=0.0) or None,
            probe_cost=max((trial.probe_cost or 0.0 for trial in trials), default=0.0) or None,
            not_finite={name: value for trial in reversed(trials) for name, value in trial.not_finite.items()},
            facts=replace(first.facts, ranks=tuple(_ranks(trials))),
        )
        rows = [0 if trial.trace is None else len(trial.trace.step) for trial in trials]
        if gone:
            why = f"node {gone[0]} no longer answers"
            return replace(joined, end="infrastructure", message=why)
        if bad:
            last_s = min(self.failed[number] for number in bad) + CONSEQUENCE_S
            near = [each for each in bad if self.failed[each] < last_s or self.trials[each].end == "hang"]
            near.sort(key=lambda each: (*_blame(self.trials[each]), self.failed[each]))
            worst = self.trials[near[0]]
            *more, _ = worst.message.splitlines() or [""]
            ends = [f"node {self.names[each]}: {self.trials[each].message.rpartition(chr(10))[2]}" for each in near]
            message = "\n".join([*more, "; ".join(ends)])
            return replace(joined, end=worst.end, message=message, failure=worst.failure, output=worst.output)
        if min(rows) < LEAST_SHARE * rows[0]:
            name, few = self.names[rows.index(min(rows))], int(min(rows))
            why = f"node {name}: only {few} of the launch's {rows[0]} samples came from there"
            return replace(joined, end="infrastructure", message=why)
        return joined


@contextmanager
def beside(nodes: Nodes, sessions: Mapping[str, Session], hold: Hold) -> Iterator[None]:
    """Hold the conversations with the other nodes while the block holds that with the first, and until they end.
    An error in any of them ends all, and is raised here."""
    errors: list[Exception] = []

    def run(number: int, session: Session) -> None:
        try:
            nodes.note(number, *hold(session, lambda: nodes.cut(number, session)))
        except Exception as error:  # noqa: BLE001 - it is raised below, where it concerns the launch
            nodes.ended[number] = -math.inf
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(number, session), daemon=True)
        for number, session in enumerate(sessions.values(), start=1)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    except BaseException:
        nodes.ended[0] = -math.inf
        raise
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _blame(trial: Trial) -> tuple[bool, bool]:
    """Return a key that sorts ends of which each may have caused the others: what is no fault of the version comes
    first, and a rank that only lost another one comes last."""
    return trial.end != "infrastructure", LOST.search(trial.message) is not None


def _ranks(trials: Sequence[Trial]) -> Iterator[RankFacts]:
    """Yield the ranks of all nodes. If nodes number their ranks alike, the second one's follow those of the first."""
    seen: set[int] = set()
    for trial in trials:
        own = {rank.rank for rank in trial.facts.ranks}
        shift = len(seen) if own & seen else 0
        yield from (replace(rank, rank=rank.rank + shift) for rank in trial.facts.ranks)
        seen |= {number + shift for number in own}


def _joined(traces: Sequence[Trace | None]) -> Trace | None:
    """Return the first node's trace with the step time of the slowest rank on any node, and with what grows most."""
    first, known = traces[0], [trace for trace in traces if trace is not None]
    if first is None or len(known) < len(traces):
        return first
    rows, columns = len(first.step), dict(first.columns)
    if "step_s" in columns:
        times = [_in_rows(trace.columns["step_s"], rows) for trace in known if "step_s" in trace.columns]
        columns["step_s"] = np.fmax.reduce(times)
    looks = [dict(look.values) for look in first.looks]
    for start in OF_MEMORY:
        names = ["anon_kib", "rss_kib"] if start == "rss_" else [f"{start}kib" if start.endswith("_") else start]
        names = [name for name in names if name in first.columns]
        worst = max(known, key=lambda trace: [_grown(trace.columns.get(name)) for name in names])
        if worst is first or not worst.columns.keys() >= set(names):
            continue
        columns |= {name: _in_rows(worst.columns[name], rows) for name in names}
        for place, values in enumerate(looks):  # levels differ between nodes: a look that this node lacks is unknown
            for figure in [each for each in values if each.startswith(start)]:
                del values[figure]
            own = worst.looks[place].values if place < len(worst.looks) else {}
            values |= {figure: value for figure, value in own.items() if figure.startswith(start)}
    for place, values in enumerate(looks):
        for name in ("cpu_s", "bytes_read", "bytes_written"):
            of_nodes = [trace.looks[place].of(name) for trace in known if place < len(trace.looks)]
            values.pop(name, None)
            if len(of_nodes) == len(known) and None not in of_nodes:
                values[name] = sum(filter(None, of_nodes))
    told = tuple(replace(look, values=values) for look, values in zip(first.looks, looks, strict=True))
    return Trace(step=first.step, columns=columns, looks=told, counts=_counts(known))


def _in_rows(values: Floats, rows: int) -> Floats:
    """Return a column with as many rows; those that it lacks are NaN."""
    return np.concatenate([values[:rows], np.full(max(0, rows - len(values)), np.nan)])


def _counts(traces: Sequence[Trace]) -> Mapping[str, Floats]:
    """Return the counts of the node on which each grows most, at the steps of the first node's."""
    counts = dict(traces[0].counts)
    for name in counts:
        own = [trace.counts for trace in traces if name in trace.counts and len(trace.counts["step"])]
        worst = max(own, key=lambda each: _grown(each[name]), default=counts)
        if name != "step" and worst is not traces[0].counts:
            counts[name] = np.interp(counts["step"], worst["step"], worst[name], right=np.nan)
    return counts


def _grown(values: Floats | None) -> float:
    """Return by how much a column grows from its second quarter to its last."""
    if values is None or not np.isfinite(values).any():
        return -np.inf
    quarter, known = len(values) // 4, values[np.isfinite(values)]
    early, late = values[quarter : 2 * quarter + 1], values[3 * quarter :]
    if not (np.isfinite(early).any() and np.isfinite(late).any()):
        return float(known[-1] - known[0])
    return float(np.nanmedian(late) - np.nanmedian(early))
