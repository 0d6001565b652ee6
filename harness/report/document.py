"""Makes the document of a run: everything that its report says, as plain data, in the order in which a reader needs it.

The terminal, the page and Markdown render this one document: the headline, the findings, the tables, and sections of
lines on what was not measured, what was observed, and what a good verdict does not cover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from harness import amounts
from harness.model import METRIC_PREFIX, CellResult, Observation, RunResult, grouped
from harness.report import version_table
from harness.report.added import added_to
from harness.report.blocks import Items, ReportSection
from harness.report.finding_boxes import FindingBox, boxes, observation_text
from harness.report.text import headline, not_decided
from harness.report.text.harmless_text import plain, shortened
from harness.report.text.names import at_most, cell_key, notable_cells, seen_in, versions_of
from harness.report.text.signal_words import SO_FAR, WHY_LENGTH, is_needless, tone
from harness.report.version_table import ReportTable

_MOST_OBSERVATIONS = 20
_DOUBTS = ("undecided", "slow", "warnings")
"""The sections that limit the answer."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """The content of a report. `headline` has a sentence for each thing that it says first. `totals` counts cells and
    launches on one line. `legend` explains the signs of the tables. `open` says on one line what was not decided or not
    checked. `sections` holds only sections with lines.
    """

    headline: tuple[str, ...]
    totals: str
    findings: tuple[FindingBox, ...]
    tables: tuple[ReportTable, ...]
    legend: tuple[str, ...]
    open: str
    sections: tuple[ReportSection, ...]


def document(result: RunResult) -> Document:
    """Return the document of a run; all its texts are cleaned by `plain`."""
    tables = version_table.tables(result)
    lists = (
        *((each.name, each.title, each.lines()) for each in added_to(result.added)),
        ("undecided", "Not measured or not decided", not_decided.lines(result)),
        ("slow", "Grows, but more slowly than the limit", not_decided.slow_growth(result)),
        ("results", "Changes that are no finding", _observed(result, of_results=True)),
        ("observed", "Observed, not judged", _observed(result, of_results=False)),
        ("warnings", "Warnings", warnings(result)),
        ("quiet", "What a good verdict does not cover", not_decided.quiet(result)),
    )
    sections = (
        ReportSection(name=name, title=title, blocks=(Items(lines=tuple(lines)),), doubt=name in _DOUBTS)
        for name, title, lines in lists
    )
    return Document(
        headline=tuple(headline.lines(result)),
        totals=_totals(result),
        findings=boxes(result),
        tables=tuple(tables),
        legend=tuple(version_table.legend(tables)),
        open=not_decided.gist(result),
        sections=tuple(section for section in sections if section.lines),
    )


def warnings(result: RunResult) -> list[str]:
    """Return the warnings to read before trusting the report, each once; hosts that could not be used come first."""
    unusable = [
        f"host {plain(state.host.name)} could not be used: {shortened(state.problem, most=WHY_LENGTH)}"
        for state in result.hosts
        if state.problem is not None
    ]
    return [*unusable, *dict.fromkeys(map(plain, result.warnings))]


def _observed(result: RunResult, *, of_results: bool) -> Iterator[str]:
    """Yield the observations `of_results`, or all others; those made in several rows share a line:
    `six 1.1 → 1.2, 2 rows: log: Could not …`, or `six since 1.2, …` if it is known which later versions have them, too.
    """
    versions = versions_of(result)
    places = grouped(
        ((each.series, seen_in(each, versions[each.series]), observation_text(each)), f"{each.lane}, {each.variant}")
        for each in result.observations
        if _is_of_results(each) == of_results
    )
    told = []
    for (series, when, text), where in places.items():
        rows = plain(where[0]) if len(set(where)) == 1 else f"{len(set(where))} rows"
        of = f"{plain(series)} {when}".rstrip()
        told.append(f"{of}, {rows}: {text}")
    yield from at_most(told, _MOST_OBSERVATIONS, rest="and {} more: see result.json")


def _is_of_results(each: Observation) -> bool:
    """Return whether it is of a result, or of a level that became better."""
    is_result = each.signal == "other_result" or each.signal.startswith(METRIC_PREFIX)
    return is_result or headline.is_better(each)


def _totals(result: RunResult) -> str:
    """Return `12 cells: 6 good, 4 worse than before, 2 bad; 36 launches and 3 A/A replicates in 3 min; seed 7`.

    `worse than before`: the cell's verdict is good, but a level such as step time or peak memory got worse.
    `partly undecided`: good, but some signal could not be decided; `to look at`: good, but with an observation that
    nobody should miss. The seed determines the launch order, for `--seed`.
    """
    notable = notable_cells(result)
    counted = Counter(_counted_as(entry, is_notable=cell_key(entry.cell) in notable) for entry in result.cells)
    parts = [f"{counted[name]:,} {name}" for name in _COUNTED if counted[name]]
    trials = [trial for entry in result.cells for trial in entry.trials]
    known = sum("" < trial.started < result.started for trial in trials)
    again = sum(trial.is_replicate and trial.started >= result.started for trial in trials)
    ran = amounts.count(len(trials) - known - again, "launch")
    replicates = f" and {amounts.count(again, 'A/A replicate')}" if again else ""
    earlier = f", {known:,} more from earlier runs" if known else ""
    cells, time = amounts.count(len(result.cells), "cell"), amounts.duration(result.duration_s)
    return f"{cells}: {', '.join(parts) or 'none'}; {ran}{replicates} in {time}{earlier}; seed {result.plan.seed}"


_COUNTED = (
    "good", "to look at", "partly undecided", SO_FAR,
    "worse than before", "bad", "unsure", "not measured", "not needed",
)  # fmt: skip


def _counted_as(entry: CellResult, *, is_notable: bool) -> str:
    """Return the category in _COUNTED to which a cell belongs."""
    own, state = tone(entry.verdict.verdict), entry.verdict.state
    if own == "good":
        in_part = SO_FAR if entry.verdict.provisional else "partly undecided"
        return {"bad": "worse than before", "good": "to look at" if is_notable else "good"}.get(state, in_part)
    if own == "none":
        return "not needed" if is_needless(entry) else "not measured"
    return "unsure" if state == "unsure" else "bad"
