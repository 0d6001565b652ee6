"""Makes the part of the page below the tables: each history with its versions, and details of important cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness import amounts, facts
from harness.model import METRIC_PREFIX, SIGNALS, CellResult, Finding, Metric, RunResult, Trial, unit_per
from harness.report.blocks import Block, Box, Charts, Code, ReportSection, TextTable
from harness.report.charts import history_chart, traces
from harness.report.content import environment_diff, version_table
from harness.report.issue import public_images
from harness.report.text import finding_words, signal_words
from harness.report.text.harmless_text import plain, plain_lines, version
from harness.report.text.names import place_of, place_of_cell, side_of

MOST_POINTS = 90_000
TAIL_LINES = 20
MOST_DIFFERENCES = 60
MOST_OPEN = 8
"""Most bad histories that a page unfolds."""
COLUMNS = (
    "version", "verdict", "memory", "{unit}", "rules out above", "step time", "peak memory", "trials", "why",
)  # fmt: skip
Medians = Mapping[Metric, version_table.Row]
"""The rows of the levels that changed in a history."""


def histories(
    tables: Sequence[version_table.ReportTable], result: RunResult, anchors: Mapping[str, str], in_full: frozenset[str]
) -> Iterator[ReportSection]:
    """Yield every history, bad ones first, one at a time: all histories of a large run would fill the memory.

    `anchors` are link names by cell id; `in_full` are the ids of the cells with details, from `shown_in_full`.
    """
    lines = sum(traces.lines_of(entry) for entry in result.cells if entry.cell_id in in_full)
    points = max(2, min(120, MOST_POINTS // max(1, lines)))
    found: list[tuple[bool, str, version_table.Row, Medians]] = []
    for table in tables:
        for row in table.verdicts:
            medians: Medians = {
                each.medians: each for each in table.rows if each.medians and each.variant == row.variant
            }
            is_bad = any(each.is_bad for each in (row, *medians.values()))
            found.append((is_bad, f"{row.variant} ({table.title})", row, medians))
    found.sort(key=lambda history: not history[0])
    for number, (is_bad, name, row, medians) in enumerate(found):
        cells = [cell for cell in row.cells if cell is not None]
        machines = ", ".join(dict.fromkeys(cell.result.machine for cell in cells if cell.result.machine))
        title = f"{name}, measured on {plain(machines)}" if machines else name
        blocks: list[Block] = [
            Charts(drawn=tuple(history_chart.drawings(row, medians, name=name))),
            _evidence(cells, medians, anchors, in_full),
        ]
        if signals := version_table.signal_table(row):
            blocks.append(ReportSection(title="All signals", name="signals", fold="shut", blocks=(signals,)))
        blocks.append(f"To measure this row again: `{plain(public_images.of_history(cells[0].result, result))}`")
        blocks += _apart([cell.result for cell in cells], result.findings)
        blocks += [_cell(cell, result, anchors, points) for cell in cells if cell.result.cell_id in in_full]
        yield ReportSection(
            title=(Box(text=title), *([Box(text="✗", tone="bad")] if is_bad else [])),
            name="history",
            fold="open" if is_bad and number < MOST_OPEN else "shut",
            blocks=tuple(blocks),
        )


def _evidence(
    cells: Sequence[version_table.Shown], medians: Medians, anchors: Mapping[str, str], in_full: frozenset[str]
) -> TextTable:
    """Return a row for each version, whose line of memory has the same scale in all rows."""
    scale_kib = traces.scale_kib(cell.result.trials for cell in cells)
    rows = []
    for cell in cells:
        entry, verdict = cell.result, cell.result.verdict
        memory, anchor = verdict.of("memory"), anchors[entry.cell_id]
        layer = verdict.layer and f"layer: {verdict.layer}"
        rows.append(
            (
                Box(
                    text=version(entry.cell.image.version), anchor=f"r{anchor}",
                    link=f"#c{anchor}" if entry.cell_id in in_full else "",
                ),
                Box(text=f"{cell.symbol} {cell.text}", tone=cell.kind),
                traces.sparkline(entry.trials, scale_kib=scale_kib, tone=cell.tone),
                amounts.with_interval(memory.value, memory.ci),
                "" if memory.visible is None else amounts.number(memory.visible),
                _level(cell, "step_time", medians),
                _level(cell, "peak_memory", medians),
                f"{verdict.trials}" + (f", {verdict.failed} failed" if verdict.failed else ""),
                "; ".join(filter(None, (signal_words.why(entry), layer, *signal_words.doubts(verdict)))),
            )
        )  # fmt: skip
    title = f"Full height of the lines: {amounts.in_unit(scale_kib, 'KiB')}"
    unit = unit_per(SIGNALS["memory"], signal_words.per_of(cell.result.verdict for cell in cells))
    columns = tuple(name.format(unit=unit) for name in COLUMNS)
    return TextTable(title=title, columns=columns, rows=tuple(rows), ends_in_text=True, is_below=True, style="evidence")


def _level(cell: version_table.Shown, metric: Metric, medians: Medians) -> Box:
    """Return a median; if it changed in the history, with the mark and the size of the change."""
    text = signal_words.figure_text(metric, cell.result.verdict)
    if metric == "step_time" and not text and any(trial.conditions.beside for trial in cell.result.trials):
        return Box(text="not measured")
    changed = medians[metric].cells if metric in medians and text else ()
    of = next((shown for shown in changed if shown is not None and shown.result is cell.result), None)
    if of is None:
        return Box(text=text)
    return Box(text=f"{of.symbol} {of.word} {of.figure}".rstrip(), tone=of.tone)


def _cell(cell: version_table.Shown, result: RunResult, anchors: Mapping[str, str], points: int) -> ReportSection:
    entry = cell.result
    name = plain(f"{entry.cell.image.version}, {entry.cell.variant} on {entry.cell.lane}")
    told = [*((label, plain(text)) for label, text in _facts(entry) if text)]
    told.append(("reproduce", f"`{plain(public_images.of_cell(entry, result))}`"))
    blocks: list[Block] = [
        TextTable(columns=(), rows=tuple(told), ends_in_text=True, style="evidence"),
        Charts(drawn=tuple(traces.drawings(entry, name=name, points=points))),
    ]
    if looks := tuple(traces.look_rows(entry.trials)):
        title = "Figures at each look, after garbage collection"
        blocks.append(
            TextTable(title=title, columns=traces.LOOK_TITLES, rows=looks, has_figures=True, style="evidence")
        )
    failed = [trial for trial in entry.trials if not trial.ended_well]
    if failed:
        tail = plain_lines("\n".join(filter(None, (failed[-1].output.tail, failed[-1].told))), most=TAIL_LINES)
        blocks += ["End of the output of the last failed trial:", Code(text="\n".join(tail))] if tail else []
    shown = Box(text=f"{cell.symbol} {cell.word} {cell.figure}".rstrip(), tone=cell.tone)
    return ReportSection(
        title=(Box(text=version(entry.cell.image.version)), shown),
        name="cell", anchor=f"c{anchors[entry.cell_id]}", fold="shut", blocks=tuple(blocks),
    )  # fmt: skip


def _apart(cells: Sequence[CellResult], findings: Iterable[Finding]) -> Iterator[ReportSection]:
    """Yield the differences between the environments of the two versions of each finding here, once per pair."""
    here = {entry.cell.image.version: entry for entry in cells}
    place = place_of_cell(cells[0].cell)[:3]
    found: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        if place_of(finding)[:3] == place and finding.before in here and finding.after in here:
            found.setdefault((finding.before or "", finding.after), finding)
    order = list(here)
    for (before, after), finding in sorted(found.items(), key=lambda item: order.index(item[0][1])):
        sections = facts.sections(_told(here[before]), _told(here[after]))
        rows = environment_diff.rows(sections)
        title = f"Differences between {version(before)} and {version(after)}"
        notes = (*environment_diff.same(sections), *environment_diff.unknown(sections))
        blocks: tuple[Block, ...] = ("None in what the launches reported about their environment.", *notes)
        if rows:
            columns = ("kind", "name", version(before), version(after))
            shown = tuple(rows[:MOST_DIFFERENCES])
            more = len(rows) - len(shown)
            rest = (f"and {more} more: run `harness diff`",) if more else ()
            blocks = (TextTable(columns=columns, rows=shown, style="evidence wrapped"), *rest, *notes)
        name = (Box(text=title), Box(text=finding_words.text(finding), tone="dim"))
        yield ReportSection(title=name, name="apart", fold="shut", blocks=blocks)


def _told(entry: CellResult) -> Trial | None:
    """Return the first launch that reported facts about its environment; None if no launch did."""
    return next((trial for trial in entry.trials if trial.facts), None)


def _facts(entry: CellResult) -> Iterable[tuple[str, str]]:
    verdict, told = entry.verdict, _told(entry)
    seen = {} if told is None else told.facts
    machine = next((trial.fingerprint for trial in entry.trials if trial.fingerprint), {})
    yield "why", signal_words.why(entry)
    yield "signals", "; ".join(signal_words.doubts(verdict))
    yield "layer", verdict.layer or ""
    yield "image", entry.digest or ""
    yield "python", " ".join(str(seen[name]) for name in ("implementation", "python", "libc") if seen.get(name))
    names = ("machine", "engine", "name", "cpu", "kernel")
    yield "machine", ", ".join(str(machine[name]) for name in names if machine.get(name))
    cgroup = seen.get("cgroup")
    limit_bytes = cgroup.get("limit_bytes") if isinstance(cgroup, Mapping) else None
    yield "memory limit", amounts.size(limit_bytes) if isinstance(limit_bytes, int) else ""
    own = {name: signal.value for name, signal in verdict.signals.items() if name.startswith(METRIC_PREFIX)}
    values = (f"{name.removeprefix(METRIC_PREFIX)} {signal_words.value_text(name, value)}"
              for name, value in own.items() if value is not None)  # fmt: skip
    yield "own metrics", ", ".join(values)
    costs = [trial.probe_cost for trial in entry.trials if trial.probe_cost is not None]
    yield "measurement overhead", f"{amounts.number(100 * max(costs))} % of the steps' time" if costs else ""
    yield "disturbed", "; ".join(dict.fromkeys(trial.unsteady for trial in entry.trials if trial.unsteady))


# ---------------------------------------------------------------- full cells


MOST_LINES = 3000
"""Most trace lines on a page, over all cells; cells beyond this limit have figures only."""


def shown_in_full(result: RunResult) -> frozenset[str]:
    """Return the ids of the cells whose traces are shown, as many as MOST_LINES allows.

    Both versions of each finding come first, then bad cells, undecided cells and good cells.
    """
    sides = {side_of(finding, version) for finding in result.findings for version in (finding.before, finding.after)}

    def importance(entry: CellResult) -> int:
        return 0 if place_of_cell(entry.cell) in sides else {"bad": 1, "unsure": 2}.get(entry.verdict.state, 3)

    shown, lines = set(), 0
    for entry in sorted((entry for entry in result.cells if entry.trials), key=importance):
        lines += max(1, traces.lines_of(entry))
        if lines > MOST_LINES:
            break
        shown.add(entry.cell_id)
    return frozenset(shown)
