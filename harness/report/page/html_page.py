"""Writes the report as one self-contained page that needs no network. It supports dark mode, narrow screens and print.

All information is in the page's text and tables. An embedded script draws the charts from embedded data; the page's
content security policy allows only the embedded scripts.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from harness.model import CellResult, RunResult
from harness.report.blocks import Drawing
from harness.report.charts import finding_chart
from harness.report.charts import vega_charts as charts
from harness.report.content import version_table
from harness.report.document import document
from harness.report.exports import probe_tables
from harness.report.page import details
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain

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
    anchors = {entry.cell_id: str(number) for number, entry in enumerate(result.cells)}
    in_full = details.shown_in_full(result)
    own = files("harness.report") / "templates" / "report.js"
    scripts = [_inline(library), _inline(own.read_text(encoding="utf-8"))] if library else []
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    may_run = f"script-src {allowed}; " if allowed else ""
    page = environment().get_template("report.html.j2").stream(
        result=result,
        document=shown,
        heats=_heats(shown.tables),
        histories=details.histories(shown.tables, result, anchors, in_full),
        target=lambda entry: f"{'c' if entry.cell_id in in_full else 'r'}{anchors[entry.cell_id]}",
        left_out=sum(bool(entry.trials) and entry.cell_id not in in_full for entry in result.cells),
        keys=_keys(shown.tables),
        strip=_strip,
        probes=probe_tables.sections(result.probed),
        is_probed=bool(result.probed),
        drawn=_Drawn(),
        tip=_tip,
        scripts=scripts,
        policy=Markup(f"default-src 'none'; {may_run}style-src 'unsafe-inline'; img-src data:"),
    )  # fmt: skip
    page.enable_buffering(_PARTS)
    return b"".join(part.encode() for part in page)


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
    templates.globals["finding_chart"] = finding_chart.svg
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
        heats.update({entry.cell_id: _heat(rate(entry), largest) for entry in bad})
    return heats


def _heat(rate: float, largest: float) -> int:
    """Return the shade: 4 for the largest rate or without a rate, and one less for each factor of four below."""
    if rate <= 0 or not math.isfinite(rate / largest):
        return _HEATS
    return max(1, _HEATS + math.ceil(math.log(rate / largest, _HEATS) - 0.5))
