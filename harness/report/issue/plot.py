"""Draws the two charts of a bug report: the finding's figure over the versions, and good against bad over the steps.

They are the charts of the HTML page, with less data.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.model import CellResult
from harness.model.answers.evidence import Issue
from harness.report.charts import history_chart as history_charts
from harness.report.charts import traces
from harness.report.charts.vega_charts import Drawing
from harness.report.content import version_table
from harness.report.text import cell_words, finding_words
from harness.report.text.harmless_text import version

POINTS = 200


def pictures(issue: Issue) -> dict[str, Drawing]:
    """Return the drawings that have data, by file name without extension."""
    drawn = {"versions": _versions(issue), "steps": _steps(issue)}
    return {name: drawing for name, drawing in drawn.items() if drawing is not None}


def _versions(issue: Issue) -> Drawing | None:
    """Return a chart of the finding's figure over the versions; None if fewer than two versions have a figure."""
    results = {entry.cell.image.version: entry for entry in issue.history}
    verdicts, *changed = version_table.rows_of(results, list(results), [issue.finding])
    medians = {row.medians: row for row in changed if row.medians is not None}
    place = finding_words.place(issue.finding)
    drawing = history_charts.drawing(issue.finding.metric, verdicts, medians, name=place)
    few = drawing is None or sum(point["value"] is not None for point in drawing.rows["points"]) < 2
    return None if few else drawing


def _steps(issue: Issue) -> Drawing | None:
    """Return a chart of the step time or resident memory of the longest launch of the good and the bad version; None
    without samples.
    """
    column = "step_s" if issue.finding.metric == "step_time" else "rss_kib"
    measure = next(each for each in traces.MEASURES if each.column == column)
    sides = [entry for entry in (issue.good, issue.bad) if entry is not None]
    lines = [line for entry in sides for line in _lines(entry, measure)]
    if not lines:
        return None
    told = f"{measure.title}, over the steps"
    return Drawing(chart="trace", title=measure.title, description=told, rows={"lines": lines, "looks": []})


def _lines(entry: CellResult, measure: traces.Measure) -> Iterator[dict[str, object]]:
    sampled = [trial for trial in entry.trials if trial.trace is not None and trial.trace.step.size > 1]
    longest = max(sampled, key=lambda trial: trial.last_step, default=None)
    name = f"{version(entry.cell.image.version)} ({cell_words.verdict_word(entry.verdict)})"
    if longest is not None and (line := traces.line_row(longest, measure, points=POINTS, name=name)) is not None:
        yield line
