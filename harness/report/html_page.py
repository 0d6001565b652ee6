"""Writes the report as one self-contained page that needs no network. It supports dark mode, narrow screens and print.

All information is in the page's text and tables. An embedded script draws the charts from embedded data; the page's
content security policy allows only the embedded scripts.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from harness import amounts, facts
from harness.model import METRIC_PREFIX, SIGNALS, CellResult, Finding, Metric, RunResult, Trial, unit_per
from harness.model.measured import Facts
from harness.report import environment_diff, version_table
from harness.report.added import added_to
from harness.report.blocks import Block, Box, Charts, Code, Drawing, ReportSection, TextTable
from harness.report.charts import history_chart, latencies, traces
from harness.report.charts import vega_charts as charts
from harness.report.document import document
from harness.report.finding_boxes import FindingBox
from harness.report.issue import reproduction
from harness.report.text import finding_words, signal_words
from harness.report.text.harmless_text import plain, plain_lines, version
from harness.report.text.names import cell_key, row_key, side_of, variant_text

_CODE = re.compile(r"`([^`]+)`")
_HEATS = 4
_KEYS = {
    "good": "good", "bad heat2": "bad", "bad heat4": "worse", "unsure": "not decided", "untested": "untested",
    "incompatible": "incompatible", "excluded": "excluded", "not-run": "not run",
}  # fmt: skip
"""The style classes of cells, and their meanings."""
_PARTS = 1000


def render(result: RunResult, *, library: str = "") -> str:
    """Return the page as text. See `encoded` for `library`."""
    return encoded(result, library=library).decode()


def encoded(result: RunResult, *, library: str = "") -> bytes:
    """Return the page in UTF-8, which for a large run takes half the memory of a `str`.

    Jinja escapes all text and removes control characters. `library` is the script that `library.chart_library` returns;
    without it, the page has no charts and no scripts.
    """
    shown = document(result)
    anchors = {entry.cell.id: str(number) for number, entry in enumerate(result.cells)}
    in_full = shown_in_full(result)
    own = files("harness.report") / "templates" / "report.js"
    scripts = [_inline(library), _inline(own.read_text(encoding="utf-8"))] if library else []
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    may_run = f"script-src {allowed}; " if allowed else ""
    page = environment().get_template("report.html.j2").stream(
        result=result,
        document=shown,
        heats=_heats(shown.tables),
        histories=histories(shown.tables, result, anchors, in_full),
        target=lambda entry: f"{'c' if entry.cell.id in in_full else 'r'}{anchors[entry.cell.id]}",
        left_out=sum(bool(entry.trials) and entry.cell.id not in in_full for entry in result.cells),
        keys=_keys(shown.tables),
        strip=_strip,
        added=added_to(result.added),
        charts=_charts,
        drawn=_Drawn(),
        tip=_tip,
        scripts=scripts,
        policy=Markup(f"default-src 'none'; {may_run}style-src 'unsafe-inline'; img-src data:"),
    )  # fmt: skip
    page.enable_buffering(_PARTS)
    return b"".join(part.encode() for part in page)


def _charts(box: FindingBox) -> list[Drawing]:
    """Return the chart of a fault: its figure over the versions of the row with the largest effect."""
    drawn = history_chart.of_findings(box.telling.findings, box.row)
    return [] if drawn is None else [drawn]


class _Drawn:
    """Collects the drawings of a page as JSON, in the order in which the template adds them."""

    def __init__(self) -> None:
        self.drawings: list[str] = []

    def add(self, drawing: Drawing) -> int:
        """Add a drawing and return its number."""
        self.drawings.append(_embedded({"chart": drawing.chart, **drawing.fill}))
        return len(self.drawings) - 1

    def data(self) -> Markup:
        """Return all drawings with their definitions, and forget the drawings; call this once."""
        all_of_them = charts.definitions(charts.PAGE)
        definitions = _embedded({name: all_of_them[name] for name in charts.DRAWN_BY_A_PAGE})
        drawings = ",".join(self.drawings)
        self.drawings.clear()
        return Markup(f'{{"definitions":{definitions},"drawings":[{drawings}]}}')


def _embedded(content: Mapping[Any, Any]) -> str:
    """Return JSON in ASCII, without characters that are special in HTML."""
    return htmlsafe_json_dumps(content, allow_nan=False, separators=(",", ":"))


def _inline(script: str) -> Markup:
    """Return a script as the content of a `script` element, with end tags in it escaped."""
    return Markup(script.replace("</script", r"<\/script"))


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the template environment, which escapes all text and removes control characters."""
    templates = Environment(
        loader=PackageLoader("harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_cleaned,
    )
    templates.filters |= {"coded": _coded, "lines": _lines}
    return templates


def _coded(text: str) -> Markup:
    """Return a sentence as HTML, with text in backticks as code; a picture stays as it is."""
    return text if isinstance(text, Markup) else Markup(_CODE.sub(r"<code>\1</code>", str(escape(plain(text)))))


def _lines(text: str) -> Markup:
    """Return several lines as HTML."""
    return Markup("\n").join(plain(line) for line in text.split("\n"))


def _cleaned(value: Any) -> Any:
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


# ---------------------------------------------------------------- the heat table


def _tip(cell: version_table.Shown) -> str:
    """Return the tooltip of a cell: its verdict, the reason, and its other figures."""
    figures = {name: signal_words.figure_text(name, cell.result.verdict) for name in ("step_time", "peak_memory")}
    shown = [f"{name.partition('_')[0]} {figure}" for name, figure in figures.items() if figure]
    return "; ".join([signal_words.cell_sentence(cell.result), *shown]).replace("`", "")


@lru_cache(maxsize=1024)
def _strip(of: signal_words.Strip) -> Markup:
    """Return the marks of a cell, each with a tooltip that names its group, and a label for screen readers."""
    marks = Markup("").join(
        Markup('<i class="{}" title="{}: {}">{}</i>').format(
            tone, name, signal_words.MEANINGS[tone], signal_words.MARKS[tone]
        )
        for name, tone in zip(signal_words.GROUP_NAMES.values(), of, strict=True)
    )
    return Markup('<span class="strip" role="img" aria-label="{}">{}</span>').format(signal_words.strip_text(of), marks)


def _keys(tables: Sequence[version_table.ReportTable]) -> list[tuple[str, str]]:
    """Return the key of the colours that occur in these tables: style classes and their meanings."""
    kinds = {cell.kind for shown_table in tables for cell in shown_table.shown}
    return [(style, meaning) for style, meaning in _KEYS.items() if style.partition(" ")[0] in kinds]


def _heats(tables: Sequence[version_table.ReportTable]) -> dict[str, int]:
    """Return the shade of each bad cell by cell id, 1 to 4: its leak rate relative to the largest in its table."""

    def rate(entry: CellResult) -> float:
        return max(0.0, entry.verdict.of("memory").value or 0.0) if entry.verdict.verdict == "leak" else 0.0

    heats = {}
    for shown_table in tables:
        bad = [cell.result for cell in shown_table.shown if cell.tone == "bad"]
        largest = max((rate(entry) for entry in bad), default=0.0)
        heats.update({entry.cell.id: _heat(rate(entry), largest) for entry in bad})
    return heats


def _heat(rate: float, largest: float) -> int:
    """Return the shade: 4 for the largest rate or without a rate, and one less for each factor of four below."""
    if rate <= 0 or not math.isfinite(rate / largest):
        return _HEATS
    return max(1, _HEATS + math.ceil(math.log(rate / largest, _HEATS) - 0.5))


# ---------------------------------------------------------------- histories and cells


MOST_POINTS = 90_000
TAIL_LINES = 20
MOST_DIFFERENCES = 60
MOST_OPEN = 8
"""Most bad histories that a page unfolds."""
COLUMNS = (
    "version", "verdict", "memory", "{unit}", "rules out above", "step time", "peak memory", "trials", "why",
)  # fmt: skip


def histories(
    tables: Sequence[version_table.ReportTable], result: RunResult, anchors: Mapping[str, str], in_full: frozenset[str]
) -> Iterator[ReportSection]:
    """Yield every history, bad ones first, one at a time: all histories of a large run would fill the memory.

    `anchors` are link names by cell id; `in_full` are the ids of the cells with details, from `shown_in_full`.
    """
    lines = sum(traces.lines_of(entry) for entry in result.cells if entry.cell.id in in_full)
    points = max(2, min(120, MOST_POINTS // max(1, lines)))
    found = sorted(((row, table) for table in tables for row in table.rows), key=lambda one: not one[0].is_bad)
    for number, (row, table) in enumerate(found):
        cells = [cell for cell in row.cells if cell is not None]
        name = f"{variant_text(cells[0].result.cell.variant)} ({table.title})"
        machines = ", ".join(dict.fromkeys(cell.result.machine for cell in cells if cell.result.machine))
        title = f"{name}, measured on {plain(machines)}" if machines else name
        blocks: list[Block] = [
            Charts(drawn=(*history_chart.drawings(row, name=name), *latencies.drawings(row, name=name))),
            _evidence(row, anchors, in_full),
        ]
        if signals := version_table.signal_table(row):
            blocks.append(ReportSection(title="All signals", name="signals", fold="shut", blocks=(signals,)))
        blocks.append(f"To measure this row again: `{plain(reproduction.of_history(cells[0].result, result))}`")
        blocks += _apart([cell.result for cell in cells], result.findings)
        blocks += [_cell(cell, result, anchors, points) for cell in cells if cell.result.cell.id in in_full]
        yield ReportSection(
            title=(Box(text=title), *([Box(text="✗", tone="bad")] if row.is_bad else [])),
            name="history",
            fold="open" if row.is_bad and number < MOST_OPEN else "shut",
            blocks=tuple(blocks),
        )


def _evidence(row: version_table.Row, anchors: Mapping[str, str], in_full: frozenset[str]) -> TextTable:
    """Return a row for each version, whose line of memory has the same scale in all rows."""
    cells = [cell for cell in row.cells if cell is not None]
    scale_kib = traces.scale_kib(cell.result.trials for cell in cells)
    rows = []
    for cell in cells:
        entry, verdict = cell.result, cell.result.verdict
        memory, anchor = verdict.of("memory"), anchors[entry.cell.id]
        layer = verdict.layer and f"layer: {verdict.layer}"
        rows.append(
            (
                Box(
                    text=version(entry.cell.image.version), anchor=f"r{anchor}",
                    link=f"#c{anchor}" if entry.cell.id in in_full else "",
                ),
                Box(text=f"{cell.symbol} {cell.text}", tone=cell.kind),
                traces.sparkline(entry.trials, scale_kib=scale_kib, tone=cell.tone),
                amounts.with_interval(memory.value, memory.ci),
                "" if memory.visible is None else amounts.number(memory.visible),
                _level(cell, "step_time", row),
                _level(cell, "peak_memory", row),
                f"{verdict.trials}" + (f", {verdict.failed} failed" if verdict.failed else ""),
                "; ".join(filter(None, (signal_words.why(entry), layer, *signal_words.doubts(verdict)))),
            )
        )  # fmt: skip
    title = f"Full height of the lines: {amounts.in_unit(scale_kib, 'KiB')}"
    unit = unit_per(SIGNALS["memory"], signal_words.per_of(cell.result.verdict for cell in cells))
    columns = tuple(name.format(unit=unit) for name in COLUMNS)
    return TextTable(title=title, columns=columns, rows=tuple(rows), ends_in_text=True, is_below=True, style="evidence")


def _level(cell: version_table.Shown, metric: Metric, row: version_table.Row) -> Box:
    """Return a median; if it changed in the history, with the mark and the size of the change."""
    text = signal_words.figure_text(metric, cell.result.verdict)
    if metric == "step_time" and not text and any(trial.conditions.beside for trial in cell.result.trials):
        return Box(text="not measured")
    changed = row.levels[metric].cells if metric in row.levels and text else ()
    of = next((shown for shown in changed if shown is not None and shown.result is cell.result), None)
    if of is None:
        return Box(text=text)
    return Box(text=of.marked, tone=of.tone)


def _cell(cell: version_table.Shown, result: RunResult, anchors: Mapping[str, str], points: int) -> ReportSection:
    entry = cell.result
    name = plain(f"{entry.cell.image.version}, {entry.cell.variant} on {entry.cell.lane}")
    told = [*((label, plain(text)) for label, text in _facts(entry) if text)]
    told.append(("reproduce", f"`{plain(reproduction.of_cell(entry, result))}`"))
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
    return ReportSection(
        title=(Box(text=version(entry.cell.image.version)), Box(text=cell.marked, tone=cell.tone)),
        name="cell", anchor=f"c{anchors[entry.cell.id]}", fold="shut", blocks=tuple(blocks),
    )  # fmt: skip


def _apart(cells: Sequence[CellResult], findings: Iterable[Finding]) -> Iterator[ReportSection]:
    """Yield the differences between the environments of the two versions of each finding here, once per pair."""
    here = {entry.cell.image.version: entry for entry in cells}
    row = row_key(cells[0].cell)
    found: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        if row_key(finding) == row and finding.before in here and finding.after in here:
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
    seen = Facts() if told is None else told.facts
    machine = next((trial.fingerprint for trial in entry.trials if trial.fingerprint), {})
    yield "why", signal_words.why(entry)
    yield "signals", "; ".join(signal_words.doubts(verdict))
    yield "layer", verdict.layer or ""
    yield "image", entry.digest or ""
    yield "python", " ".join(filter(None, (seen.implementation, seen.python, seen.libc)))
    names = ("machine", "engine", "name", "cpu", "kernel")
    yield "machine", ", ".join(str(machine[name]) for name in names if machine.get(name))
    limit_bytes = None if seen.cgroup is None else seen.cgroup.limit_bytes
    yield "memory limit", "" if limit_bytes is None else amounts.size(limit_bytes)
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
        return 0 if cell_key(entry.cell) in sides else {"bad": 1, "unsure": 2}.get(entry.verdict.state, 3)

    shown, lines = set(), 0
    for entry in sorted((entry for entry in result.cells if entry.trials), key=importance):
        lines += max(1, traces.lines_of(entry))
        if lines > MOST_LINES:
            break
        shown.add(entry.cell.id)
    return frozenset(shown)
