"""The report as one self-contained page: no script, no network; light and dark, wide and narrow, and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.model import CellResult, RunResult
from harness.report import figures, sparkline, table, words
from harness.report.clean import plain
from harness.report.episodes import ordered
from harness.report.headline import sentence
from harness.report.words import Tone


@dataclass(frozen=True, kw_only=True)
class Line:
    """One version in the details of a variant: ready to be shown."""

    version: str
    tone: Tone
    symbol: str
    verdict: str
    rate: str
    step: str
    peak: str
    trials: str
    why: str
    points: str


@dataclass(frozen=True, kw_only=True)
class Details:
    """All versions of one series, lane and variant."""

    title: str
    bad: bool
    scale: str
    lines: tuple[Line, ...]


def render(result: RunResult) -> str:
    """The whole page. Every text in it is escaped by Jinja and cleaned of control characters."""
    tables = table.tables(result)
    return _environment().get_template("report.html.j2").render(
        result=result,
        headline=sentence(result),
        totals=words.totals(result),
        findings=ordered(result),
        tables=tables,
        details=_all_details(tables),
        gaps=words.gaps(result),
        warnings=words.warnings(result),
        quiet=words.quiet_text(result),
        legend=table.LEGEND,
        units=table.UNITS,
        words=words,
        spark=sparkline,
    )  # fmt: skip


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_cleaned,
    )


def _cleaned(value: Any) -> Any:
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _all_details(tables: Sequence[table.Table]) -> list[Details]:
    """The bad ones first."""
    bad = {(one.title, row.variant) for one in tables for row in one.rows if row.is_bad}
    details = [
        _details(one.title, row, bad=(one.title, row.variant) in bad)
        for one in tables
        for row in one.rows
        if not row.medians
    ]
    return sorted(details, key=lambda one: not one.bad)


def _details(title: str, row: table.Row, *, bad: bool) -> Details:
    cells = [cell for cell in row.cells if cell is not None]
    growths = [sparkline.growth(cell.result.trials) for cell in cells]
    scale_kib = sparkline.scale_kib(growths)
    return Details(
        title=f"{row.variant} ({title})",
        bad=bad,
        scale=figures.mebibytes(scale_kib / 1024),
        lines=tuple(_line(cell, one, scale_kib) for cell, one in zip(cells, growths, strict=True)),
    )


def _line(cell: table.Shown, growth: sparkline.Growth | None, scale_kib: float) -> Line:
    verdict = cell.result.verdict
    return Line(
        version=plain(cell.result.cell.image.version),
        tone=cell.tone,
        symbol=cell.symbol,
        verdict=words.cell_text(verdict),
        rate=_with_interval(verdict.rate_kib_per_step, verdict.rate_ci),
        step=_milliseconds(cell.result),
        peak="" if verdict.peak_rss_mib is None else figures.mebibytes(verdict.peak_rss_mib),
        trials=f"{verdict.trials}" + (f", {verdict.failed} failed" if verdict.failed else ""),
        why="; ".join(filter(None, (words.why(cell.result), verdict.layer and f"layer: {verdict.layer}"))),
        points="" if growth is None else sparkline.points(growth, scale_kib=scale_kib),
    )


def _with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None:
        return ""
    text = figures.number(value)
    return text if interval is None else f"{text} ({figures.between((interval[0], interval[1]))})"


def _milliseconds(result: CellResult) -> str:
    value = result.verdict.step_ms
    return "" if value is None else figures.milliseconds(value)
