"""Prepares the part of the page below the tables: each history with its versions, and details of important cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness import amounts, facts
from harness.model import METRIC_PREFIX, CellResult, Finding, Metric, RunResult, Trial
from harness.report.charts import history_chart as history_charts
from harness.report.charts import traces
from harness.report.charts.vega_charts import Drawing
from harness.report.content import environment_diff, version_table
from harness.report.issue import public_images
from harness.report.text import finding_words, signal_words
from harness.report.text.harmless_text import plain, plain_lines, version
from harness.report.text.names import place_of, place_of_cell, side_of

MOST_POINTS = 90_000
TAIL_LINES = 20
MOST_DIFFERENCES = 60


@dataclass(frozen=True, kw_only=True)
class CellPage:
    """All details of one cell. `facts` are labels and texts; `looks` are rows with columns `traces.LOOK_TITLES`."""

    anchor: str
    shown: version_table.Shown
    version: str
    title: str
    facts: tuple[tuple[str, str], ...]
    command: str
    drawings: tuple[Drawing, ...] = ()
    looks: tuple[tuple[str, ...], ...] = ()
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Level:
    """A median. If it changed in the history, `text` includes the mark and size of the change; else `tone` is ""."""

    text: str
    tone: str = ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One version in the table of a history, in cleaned texts."""

    anchor: str
    target: str
    version: str
    shown: version_table.Shown
    verdict: str
    rate: str
    excluded: str
    step: Level
    peak: Level
    trials: str
    why: str
    points: str


@dataclass(frozen=True, kw_only=True)
class Apart:
    """The differences between the environments of a finding's two versions: the first rows, and how many more there
    are. `notes`: what is the same, and what is not known.
    """

    finding: str
    before: str
    after: str
    rows: tuple[environment_diff.DiffRow, ...]
    more: int
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class History:
    """All versions of one series, lane and variant. `signals` holds each signal's tone and its texts in the order
    of `version_table.SIGNAL_COLUMNS`.
    """

    title: str
    bad: bool
    signals: tuple[tuple[signal_words.Tone, tuple[str, ...]], ...]
    scale: str
    command: str
    lines: tuple[Line, ...]
    drawings: tuple[Drawing, ...]
    apart: tuple[Apart, ...]
    cells: tuple[CellPage, ...]


def histories(
    tables: Sequence[version_table.ReportTable], result: RunResult, anchors: Mapping[str, str], in_full: frozenset[str]
) -> Iterator[History]:
    """Yield every history, bad ones first, one at a time: all histories of a large run would fill the memory.

    `anchors` are link names by cell id; `in_full` are the ids of the cells with details, from `shown_in_full`.
    """
    points = MOST_POINTS // max(1, sum(traces.lines_of(entry) for entry in result.cells if entry.cell_id in in_full))
    maker = _Maker(result=result, anchors=anchors, in_full=in_full, points=max(2, min(120, points)))
    found = [
        (shown.title, row, {each.medians: each for each in shown.rows if each.medians and each.variant == row.variant})
        for shown in tables
        for row in shown.verdicts
    ]
    for title, row, medians in sorted(found, key=lambda history: not _is_bad(history[1], history[2].values())):
        yield maker.history(title, row, medians)


def _is_bad(row: version_table.Row, medians: Iterable[version_table.Row]) -> bool:
    return any(shown_row.is_bad for shown_row in (row, *medians))


@dataclass(frozen=True, kw_only=True)
class _Maker:
    result: RunResult
    anchors: Mapping[str, str]
    in_full: frozenset[str]
    points: int

    def history(self, title: str, row: version_table.Row, medians: Mapping[Metric, version_table.Row]) -> History:
        cells = [cell for cell in row.cells if cell is not None]
        growths = [traces.growth(cell.result.trials) for cell in cells]
        scale_kib = traces.scale_kib(growths)
        name = f"{row.variant} ({title})"
        return History(
            title=name + _ran_on([cell.result for cell in cells]),
            bad=_is_bad(row, medians.values()),
            signals=tuple(version_table.signal_rows(row)),
            scale=amounts.in_unit(scale_kib, "KiB"),
            command=plain(public_images.of_history(cells[0].result, self.result)),
            lines=tuple(
                self._line(cell, growth, scale_kib, medians) for cell, growth in zip(cells, growths, strict=True)
            ),
            drawings=tuple(history_charts.drawings(row, medians, name=name)),
            apart=tuple(self._apart([cell.result for cell in cells])),
            cells=tuple(self._page(cell) for cell in cells if cell.result.cell_id in self.in_full),
        )

    def _line(
        self,
        cell: version_table.Shown,
        growth: traces.SparkGrowth | None,
        scale_kib: float,
        medians: Mapping[Metric, version_table.Row],
    ) -> Line:
        entry, verdict = cell.result, cell.result.verdict
        memory = verdict.of("memory")
        anchor, layer = self.anchors[entry.cell_id], verdict.layer and f"layer: {verdict.layer}"
        return Line(
            anchor=f"r{anchor}",
            target=f"c{anchor}" if entry.cell_id in self.in_full else "",
            version=version(entry.cell.image.version),
            shown=cell,
            verdict=cell.text,
            rate=amounts.with_interval(memory.value, memory.ci),
            excluded="" if memory.visible is None else amounts.number(memory.visible),
            step=_level(cell, "step_time", medians),
            peak=_level(cell, "peak_memory", medians),
            trials=f"{verdict.trials}" + (f", {verdict.failed} failed" if verdict.failed else ""),
            why="; ".join(filter(None, (signal_words.why(entry), layer, *signal_words.doubts(verdict)))),
            points="" if growth is None else traces.points(growth, scale_kib=scale_kib),
        )

    def _page(self, cell: version_table.Shown) -> CellPage:
        entry = cell.result
        title = f"{entry.cell.image.version}, {entry.cell.variant} on {entry.cell.lane}"
        return CellPage(
            anchor=f"c{self.anchors[entry.cell_id]}",
            shown=cell,
            version=version(entry.cell.image.version),
            title=plain(title),
            facts=tuple((label, plain(text)) for label, text in _facts(entry) if text),
            command=plain(public_images.of_cell(entry, self.result)),
            drawings=tuple(traces.drawings(entry, name=plain(title), points=self.points)),
            looks=tuple(traces.look_rows(entry.trials)),
            tail=tuple(_tail(entry)),
        )

    def _apart(self, cells: Sequence[CellResult]) -> Iterable[Apart]:
        """Yield the differences between the two versions of each finding in this history, once per pair."""
        here = {entry.cell.image.version: entry for entry in cells}
        place = place_of_cell(cells[0].cell)[:3]
        found: dict[tuple[str | None, str], Finding] = {}
        for finding in self.result.findings:
            if place_of(finding)[:3] == place and finding.before in here and finding.after in here:
                found.setdefault((finding.before, finding.after), finding)
        order = list(here)
        for (before, after), finding in sorted(found.items(), key=lambda item: order.index(item[0][1])):
            sections = facts.sections(_told(here[before or ""]), _told(here[after]))
            rows = environment_diff.rows(sections)
            yield Apart(
                finding=finding_words.text(finding),
                before=version(before or ""),
                after=version(after),
                rows=tuple(rows[:MOST_DIFFERENCES]),
                more=max(0, len(rows) - MOST_DIFFERENCES),
                notes=(*environment_diff.same(sections), *environment_diff.unknown(sections)),
            )


def _ran_on(cells: Sequence[CellResult]) -> str:
    """Return `, measured on gpu3`, the machines of a pool that measured a row; "" if the host is not a pool."""
    machines = ", ".join(dict.fromkeys(cell.machine for cell in cells if cell.machine))
    return f", measured on {plain(machines)}" if machines else ""


def _level(cell: version_table.Shown, metric: Metric, medians: Mapping[Metric, version_table.Row]) -> Level:
    text, changed = signal_words.figure_text(metric, cell.result.verdict), medians.get(metric)
    if metric == "step_time" and not text and any(trial.conditions.beside for trial in cell.result.trials):
        return Level(text="not measured")
    of = [shown for shown in changed.cells if shown is not None and shown.result is cell.result] if changed else []
    if not of or not text:
        return Level(text=text)
    return Level(text=f"{of[0].symbol} {of[0].word} {of[0].figure}".rstrip(), tone=of[0].tone)


def _told(entry: CellResult) -> Trial | None:
    """Return the first launch that reported facts about its environment; None if no launch did."""
    return next((trial for trial in entry.trials if trial.facts), None)


def _facts(entry: CellResult) -> Iterable[tuple[str, str]]:
    verdict = entry.verdict
    told = _told(entry)
    seen = {} if told is None else told.facts
    machine = next((trial.fingerprint for trial in entry.trials if trial.fingerprint), {})
    yield "why", signal_words.why(entry)
    yield "signals", "; ".join(signal_words.doubts(verdict))
    yield "layer", verdict.layer or ""
    yield "image", entry.digest or ""
    yield "python", " ".join(str(seen[name]) for name in ("implementation", "python", "libc") if seen.get(name))
    names = ("machine", "engine", "name", "cpu", "kernel")
    yield "machine", ", ".join(str(machine[name]) for name in names if machine.get(name))
    yield "memory limit", _memory_limit(seen)
    yield (
        "own metrics",
        ", ".join(
            f"{name.removeprefix(METRIC_PREFIX)} {signal_words.value_text(name, signal.value)}"
            for name, signal in verdict.signals.items()
            if name.startswith(METRIC_PREFIX) and signal.value is not None
        ),
    )
    costs = [trial.probe_cost for trial in entry.trials if trial.probe_cost is not None]
    yield "measurement overhead", f"{amounts.number(100 * max(costs))} % of the steps' time" if costs else ""
    yield "disturbed", "; ".join(dict.fromkeys(trial.unsteady for trial in entry.trials if trial.unsteady))


def _memory_limit(seen: Mapping[str, object]) -> str:
    """Return the memory limit that the agent read inside a launch; "" if there was none."""
    cgroup = seen.get("cgroup")
    limit_bytes = cgroup.get("limit_bytes") if isinstance(cgroup, Mapping) else None
    return amounts.size(limit_bytes) if isinstance(limit_bytes, int) else ""


def _tail(entry: CellResult) -> list[str]:
    """Return the last lines of the last failed trial's output; [] if no trial failed."""
    failed = [trial for trial in entry.trials if not trial.ended_well]
    if not failed:
        return []
    return plain_lines("\n".join(filter(None, (failed[-1].output.tail, failed[-1].told))), most=TAIL_LINES)


# ---------------------------------------------------------------- full cells


MOST_LINES = 3000
"""Most trace lines on a page, over all cells; cells beyond this limit have figures only."""


def left_out(result: RunResult, in_full: frozenset[str]) -> int:
    """Return how many cells with trials have no details on the page, because the file would become too large."""
    return sum(bool(entry.trials) and entry.cell_id not in in_full for entry in result.cells)


def shown_in_full(result: RunResult) -> frozenset[str]:
    """Return the ids of the cells whose traces are shown, as many as MOST_LINES allows.

    Both versions of each finding come first, then bad cells, undecided cells and good cells.
    """
    sides = {side_of(finding, version) for finding in result.findings for version in (finding.before, finding.after)}
    measured = [entry for entry in result.cells if entry.trials]
    measured.sort(key=lambda entry: _importance(entry, sides))
    shown, lines = set(), 0
    for entry in measured:
        lines += max(1, traces.lines_of(entry))
        if lines > MOST_LINES:
            break
        shown.add(entry.cell_id)
    return frozenset(shown)


def _importance(entry: CellResult, sides: set[tuple[str, str, str, str]]) -> int:
    """Return a sort key, most important first: the versions of a finding, then bad, undecided and good cells."""
    if place_of_cell(entry.cell) in sides:
        return 0
    return {"bad": 1, "unsure": 2}.get(entry.verdict.state, 3)
