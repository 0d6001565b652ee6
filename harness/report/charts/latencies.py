"""Draws how the latencies of a server's requests are distributed, one line for each version."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.model import CellResult, Floats, Trial
from harness.report.blocks import Drawing
from harness.report.text.harmless_text import version
from harness.report.version_table import Row

SHARES = (1, 5, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.9)
"""Percentiles that are drawn, at equal distances: the slow requests take as much room as the others."""
WARM_UP = 0.25
"""Share of the requests of a launch, at its beginning, that is not drawn, as it is not compared."""
MOST = 8
"""Most versions in one chart: as many as have a colour of their own."""
BEYOND = 5
"""Fewest requests beyond a percentile that is drawn."""


def drawings(row: Row, *, name: str) -> list[Drawing]:
    """Return the drawing for the versions of a history; none if it is that of no server. Of many versions, those with
    a finding come first."""
    cells = [cell for cell in row.cells if cell is not None]
    if not any(trial.facts.step_kind == "request" for cell in cells for trial in cell.result.trials):
        return []
    told = sorted(range(len(cells)), key=lambda place: (cells[place].mark is None, place))[:MOST]
    chosen = [cells[place].result for place in sorted(told)]
    lines = [line for entry, trials in zip(chosen, _launches(chosen), strict=True) if (line := _line(entry, trials))]
    if not lines:
        return []
    title = "latency by the share of requests that take no longer, ms"
    return [Drawing(chart="latency", title=title, description=f"{title}, for {name}", rows={"lines": lines})]


def _launches(entries: Sequence[CellResult]) -> list[list[Trial]]:
    """Return the launches of each version: those that took turns, if all versions have some."""
    ended = [[trial for trial in entry.trials if trial.ended_well] for entry in entries]
    sliced = [[trial for trial in version if trial.took_turns] for version in ended]
    return sliced if all(sliced) else ended


def _line(entry: CellResult, trials: Sequence[Trial]) -> dict[str, object] | None:
    parts = [values[int(WARM_UP * len(values)) :] for trial in trials if (values := _latencies(trial)) is not None]
    rows = np.concatenate(parts) if parts else np.empty(0)
    shares = [share for share in SHARES if (1 - share / 100) * len(rows) >= BEYOND]
    if not shares:
        return None
    in_ms = [float(f"{1000 * value:.4g}") for value in np.percentile(rows, shares)]
    return {"version": version(entry.cell.image.version), "share": [f"{each:g} %" for each in shares], "value": in_ms}


def _latencies(trial: Trial) -> Floats | None:
    values = trial.figures("step_s")
    return None if values is None else values[np.isfinite(values)]
