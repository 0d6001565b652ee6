"""Makes the pages of the site, each with a key that hashes its sources, so that a new run rewrites few of them."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from markupsafe import Markup

from harness import amounts
from harness.model.indexed import FindingLife, IndexedRun, SitePage, SiteSource
from harness.report.charts import finding_chart
from harness.report.page.html_page import environment
from harness.report.site import site_tables
from harness.report.site.site_tables import (
    badge,
    digest,
    matrix_page,
    month_of,
    run_page,
    series_page,
    year_page,
    year_title,
)
from harness.report.text import finding_words
from harness.report.text.harmless_text import shortened
from harness.report.text.signal_words import SYMBOLS, Tone

MOST_ROWS = 600
"""Most lines of histories on a page; even with long names, they take less than 300 kB."""
MOST_HISTORIES = 40
MOST_MARKS = 240
MOST_EVENTS = 120
MOST_FINDINGS = 250
MOST_RUNS = 40
FIXED_SINCE = "bad, fixed in a newer version"
"""The verdict shown for a bad newest run of a matrix without open findings: its bad versions are not the newest."""
MOST_SENTENCES, MOST_WARNINGS = 60, 40


def pages(source: SiteSource, *, url: str = "") -> Iterator[SitePage]:
    """Yield every file of the site. `url` is the URL of the site, for the links in the feed; "" keeps them relative."""
    runs = list(source.runs.values())
    by_matrix: dict[str, list[IndexedRun]] = {}
    for run in runs:
        by_matrix.setdefault(run.matrix, []).append(run)
    maker = _Maker(source=source, by_matrix=by_matrix)
    everything = _key(runs)
    yield maker.page("index.html", everything, "site_index.html.j2", maker.front)
    yield from maker.findings(everything)
    yield SitePage(name="feed.xml", key=digest([everything, url]), render=lambda: site_tables.feed(source, url=url))
    yield from maker.months(runs)
    for matrix, own in by_matrix.items():
        yield from maker.matrix(matrix, own)
    for run in runs:
        yield maker.run(run)


def _key(runs: Iterable[IndexedRun], *more: str) -> str:
    return digest([_generator(), *more, *(f"{run.path} {run.stamp}" for run in runs)])


@lru_cache(maxsize=1)
def _generator() -> str:
    """Return a hash of the templates and the code, so that a newer harness rewrites all pages."""
    folder = files("harness.report")
    sources = [*(folder / "site").iterdir(), *(folder / "templates").iterdir(), *(folder / "text").iterdir()]
    named = sorted((file.name, file) for file in sources if file.is_file())
    return digest(file.read_text(encoding="utf-8") for _, file in named)


@lru_cache(maxsize=1)
def _style() -> tuple[Markup, Markup]:
    """Return the style sheet of all pages, and a content security policy that allows only it and data images."""
    folder = files("harness.report") / "templates"
    style = "".join((folder / name).read_text(encoding="utf-8") for name in ("report.css", "site.css"))
    known = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{known}'; img-src data:; base-uri 'none'; form-action 'none'"
    return Markup(style), Markup(policy)


class _Maker:
    def __init__(self, *, source: SiteSource, by_matrix: Mapping[str, Sequence[IndexedRun]]) -> None:
        self._source, self._by_matrix = source, by_matrix
        self._environment = environment()

    def page(self, name: str, key: str, template: str, content: Any) -> SitePage:
        """Return a page; `content` is called when the page is rendered."""
        return SitePage(name=name, key=key, render=lambda: self._render(name, template, content()))

    def _render(self, name: str, template: str, content: Mapping[str, Any]) -> str:
        style, policy = _style()
        root = "../" * name.count("/")
        made = self._environment.get_template(template).render(
            style=style, policy=policy, root=root, finding_chart=finding_chart, symbols=SYMBOLS, here=name, **content
        )
        return str(made)

    # ------------------------------------------------------------ all matrices

    def front(self) -> Mapping[str, Any]:
        runs = list(self._source.runs.values())
        months = {month_of(run.started) for run in runs}
        return {
            "title": "Findings of all matrices",
            "matrices": [self._summary(matrix, own) for matrix, own in self._by_matrix.items()],
            **self._open(None),
            "runs": [site_tables.run_row(run) for run in reversed(runs[-MOST_RUNS:])],
            "months": sorted(months, key=lambda month: month.replace("undated", ""), reverse=True)[:120],
        }

    def _summary(self, matrix: str, runs: Sequence[IndexedRun]) -> tuple[site_tables.Box, ...]:
        text, tone = self._state_of(matrix)
        newest, _, verdict, *_ = site_tables.run_row(runs[-1])
        if tone != "bad" and runs[-1].verdict == "regression":
            if any(life.status == "fixed" and life.seen == runs[-1].id for life in self._source.lives):
                verdict = site_tables.Box(text=FIXED_SINCE)
            else:
                text, tone = amounts.count(runs[-1].bad, "bad cell"), "bad"
        return (
            site_tables.Box(text=site_tables.short_name(matrix), link=matrix_page(matrix)),
            site_tables.Box(text=f"{SYMBOLS[tone]} {text}", tone=tone),
            site_tables.Box(text=amounts.count(len(runs), "run")),
            newest,
            verdict,
        )

    def _state_of(self, matrix: str, series: str | None = None) -> tuple[str, Tone]:
        """Return the state of a matrix or a series, such as `2 open, 1 drift`, and its tone."""
        own = {
            history.id
            for history in self._source.histories.values()
            if history.matrix == matrix and series in (None, history.series)
        }
        open_ = [life for life in site_tables.open_findings(self._source) if life.history in own]
        drifts = [drift for drift in self._source.drifts if drift.history in own]
        told = [f"{len(open_)} open"] * bool(open_) + [amounts.count(len(drifts), "drift")] * bool(drifts)
        if told:
            return ", ".join(told), "bad"
        return ("nothing open", "good") if own else ("nothing measured", "none")

    def _open(self, matrix: str | None) -> Mapping[str, Any]:
        """Return the open findings (text, status, page of the series), newest first, and the drifts."""
        chosen = [
            life
            for life in site_tables.open_findings(self._source)
            if matrix in (None, self._source.histories[life.history].matrix)
        ]
        chosen.sort(key=lambda life: self._source.runs[life.found].started, reverse=True)
        drifts = self._drifts(matrix)
        return {
            "open": [self._told(life) for life in chosen[:MOST_FINDINGS]],
            "drifts": drifts[:MOST_FINDINGS],
            "all_open": len(chosen) + len(drifts),
        }

    def _told(self, life: FindingLife) -> tuple[str, str, str]:
        history = self._source.histories[life.history]
        text = shortened(f"{site_tables.short_place(history)}: {finding_words.life_text(life)}", most=500)
        return (
            text,
            finding_words.standing(life, self._source.runs),
            series_page(history.matrix, history.series),
        )

    def _drifts(self, matrix: str | None) -> list[tuple[str, str]]:
        """Return the drifts (text, page of the series)."""
        places = [(drift, self._source.histories[drift.history]) for drift in self._source.drifts]
        return [
            (
                shortened(f"{finding_words.history_place(at)}: {finding_words.drift_text(drift)}", most=500),
                series_page(at.matrix, at.series),
            )
            for drift, at in places
            if matrix in (None, at.matrix)
        ]

    def findings(self, key: str) -> Iterator[SitePage]:
        """Yield the page of open findings, and pages of closed findings by the year in which they were found."""
        years: dict[str, list[FindingLife]] = {}
        for life in self._source.lives:
            if life.status != "open" and not life.begins.consequence_of:
                years.setdefault(self._source.runs[life.found].started[:4], []).append(life)
        parts = {
            (year, 1 + start // MOST_FINDINGS): found[start : start + MOST_FINDINGS]
            for year, found in sorted(years.items())
            for start in range(0, len(found), MOST_FINDINGS)
        }
        links = [(year_page(*part), year_title(*part)) for part in parts]
        yield self.page(
            "findings.html", key, "site_findings.html.j2",
            lambda: {"title": "Findings", **self._open(None), "closed": links},
        )  # fmt: skip
        for (name, _), found in zip(links, parts.values(), strict=True):
            closed = [self._told(life) for life in found]
            own = digest([_generator(), *map(str, closed)])
            content = {"title": "Closed findings", "closed": closed}
            yield self.page(name, own, "site_closed.html.j2", functools.partial(dict[str, Any], content))

    def months(self, runs: Sequence[IndexedRun]) -> Iterator[SitePage]:
        by_month: dict[str, list[IndexedRun]] = {}
        for run in runs:
            by_month.setdefault(month_of(run.started), []).append(run)
        for month, own in by_month.items():

            def content(month: str = month, own: Sequence[IndexedRun] = own) -> Mapping[str, Any]:
                shown = own[-MOST_ROWS:]
                return {
                    "title": f"Runs of {month}",
                    "runs": [site_tables.run_row(run) for run in reversed(shown)],
                    "older": len(own) - len(shown),
                }

            yield self.page(f"runs-{month}.html", _key(own), "site_runs.html.j2", content)

    # ------------------------------------------------------------ one matrix

    def matrix(self, matrix: str, runs: Sequence[IndexedRun]) -> Iterator[SitePage]:
        """Yield the pages and badges of a matrix, except the pages of its runs."""
        series = sorted({history.series for history in self._source.histories.values() if history.matrix == matrix})

        def content() -> Mapping[str, Any]:
            lanes, table = site_tables.state_table(self._source.now(matrix), self._source)
            return {
                "title": site_tables.short_name(matrix),
                "lanes": lanes,
                "table": table,
                **self._open(matrix),
                "runs": [site_tables.run_row(run) for run in reversed(runs[-MOST_RUNS:])],
                "all_runs": len(runs),
            }

        yield self.page(matrix_page(matrix), _key(runs), "site_matrix.html.j2", content)
        yield self._badge(badge(matrix), matrix, None)
        for series_name in series:
            yield self._badge(badge(matrix, series_name), matrix, series_name)
            own = [run for run in runs if series_name in self._source.series_of.get(run.id, frozenset())]
            yield from self._series(matrix, series_name, own)

    def _badge(self, name: str, matrix: str, series: str | None) -> SitePage:
        text, tone = self._state_of(matrix, series)
        label = site_tables.short_name(series or matrix)
        key = digest([_generator(), label, text, tone])
        return SitePage(name=name, key=key, render=lambda: render(label, text, tone=tone))

    def _series(self, matrix: str, series: str, runs: Sequence[IndexedRun]) -> Iterator[SitePage]:
        """Yield the pages of a series, more than one if it has many histories."""
        count = sum((history.matrix, history.series) == (matrix, series) for history in self._source.histories.values())
        parts = range(1, 2 + (count - 1) // MOST_HISTORIES)
        for part in parts:
            key = _key(runs, f"part {part}")

            def content(part: int = part) -> Mapping[str, Any]:
                views = self._source.views(matrix, series)
                some = views[(part - 1) * MOST_HISTORIES : part * MOST_HISTORIES]
                noise = site_tables.noise_rows(views)
                most, marks = MOST_ROWS // len(some), min(40, MOST_MARKS // len(some))
                found = list(site_tables.of_lives((life for view in views for life in view.lives), self._source))
                happened = site_tables.newest_first(
                    [*found, *site_tables.of_images(views, self._source, between=found)]
                )
                return {
                    "title": site_tables.short_name(series),
                    "matrix": (site_tables.short_name(matrix), matrix_page(matrix)),
                    "histories": [
                        site_tables.history_rows(view, self._source, most=most, marks=marks) for view in some
                    ],
                    "events": [
                        (
                            finding_words.day(event.at),
                            shortened(event.text, most=400),
                            event.tone,
                            run_page(event.run),
                        )
                        for event in happened[:MOST_EVENTS]
                    ],
                    "all_events": len(happened),
                    "noise": noise[:MOST_HISTORIES],
                    "all_noise": len(noise),
                    "noise_titles": site_tables.noise_titles(),
                    "parts": [series_page(matrix, series, part_number) for part_number in parts],
                }

            yield self.page(series_page(matrix, series, part), key, "site_series.html.j2", content)

    def run(self, run: IndexedRun) -> SitePage:
        def content() -> Mapping[str, Any]:
            cells = self._source.cells(run.id)
            worst = ("bad", "unsure", "none", "good")
            cells.sort(key=lambda cell: worst.index(cell.state))
            # A damaged run may have findings in a history without cells.
            findings = [one for one in self._source.findings(run.id) if one[0] in self._source.histories]
            warnings = [text for text in (*run.warnings, run.problem) if text]
            return {
                "title": f"{site_tables.short_name(run.matrix)}, {finding_words.minute(run.started)}",
                "run": run,
                "verdict": finding_words.run_verdict(run),
                "took": amounts.duration(run.duration_s),
                "matrix": (site_tables.short_name(run.matrix), matrix_page(run.matrix)),
                "sentences": [shortened(text, most=400) for text in run.sentences[:MOST_SENTENCES]],
                "warnings": [shortened(text, most=400) for text in warnings[:MOST_WARNINGS]],
                "findings": [
                    (site_tables.short_place(self._source.histories[place]), finding.number,
                     shortened(finding_words.finding_text(finding), most=300))
                    for place, finding in findings[:MOST_FINDINGS]
                ],
                "cells": [
                    (site_tables.short_place(history), series_page(history.matrix, history.series),
                     site_tables.short_name(cell.version), cell,
                     finding_words.measured_verdict(cell), shortened(cell.why, most=160))
                    for cell in cells[: MOST_ROWS // 2]
                    for history in [self._source.histories[cell.history]]
                ],
                "all": {"sentences": len(run.sentences), "warnings": len(warnings), "findings": len(findings),
                        "cells": len(cells)},
            }  # fmt: skip

        return self.page(run_page(run), _key([run]), "site_run.html.j2", content)


# ---------------------------------------------------------------- badges


_COLOURS: dict[Tone, str] = {"bad": "#b42318", "good": "#1a6b3c", "unsure": "#8a5a00", "none": "#5c6570"}
_LETTER, _ROOM = 6.6, 12
_LONGEST = 40


def render(name: str, text: str, *, tone: Tone) -> str:
    """Return the badge as SVG, without scripts, style sheets or embedded fonts."""
    name, text = shortened(name, most=_LONGEST), shortened(text, most=_LONGEST)
    left, right = (round(len(part) * _LETTER) + _ROOM for part in (name, text))
    told = f"{name}: {text}"
    labels = "".join(
        f'<text x="{x:.1f}" y="14" text-anchor="middle" textLength="{width - _ROOM}">{escape(part)}</text>'
        for part, x, width in ((name, left / 2, left), (text, left + right / 2, right))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f"aria-label={quoteattr(told)}><title>{escape(told)}</title>"
        f'<rect width="{left}" height="20" fill="#40464d"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[tone]}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{labels}</g></svg>\n'
    )
