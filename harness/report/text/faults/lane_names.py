"""Names lanes in sentences about a fault: by their card if no other lane has the same card."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import GOOD, UNSURE, Attribution, Cell, CellVerdict, Lane, RunResult
from harness.report.bad_ranges import place_of_cell
from harness.report.text import numbers, words
from harness.report.text.harmless_text import plain, version

_EITHER = "host or card"
LOCAL = "local"
"""The name of the default host, which sentences call `this machine`."""


def host_name(name: str) -> str:
    """Return the host's name with its noun: `host old`, or `this machine`."""
    return "this machine" if name == LOCAL else f"host {plain(name)}"


class Names:
    """Names the lanes of one attribution. In a run with one host and one lane, `on` names only a named card."""

    def __init__(self, attribution: Attribution, result: RunResult) -> None:
        self._cells = result.cells
        rows = [row for row in result.plan.rows if row.series.name == attribution.series]
        self.oldest = rows[0].series.images[0].version
        self._lanes = dict.fromkeys(row.lane for row in rows if row.variant.scenario.name == attribution.scenario)
        hosts = {host.name for host in result.plan.matrix.hosts} | {lane.host.name for lane in self._lanes}
        self._is_only = len(hosts) == len(self._lanes) == 1

    def one(self, lane: Lane) -> str:
        """Return `the RTX 4090` if only this lane has that card, otherwise the lane's full name."""
        return self._noun(lane) or words.lane_text(lane)

    def _noun(self, lane: Lane) -> str:
        """Return `the RTX 4090` or `this machine`; "" if only its full name distinguishes the lane from others."""
        twins = [other for other in self._lanes if other.gpu == lane.gpu]
        if _has_name(lane) and len(twins) == 1:
            return f"the {plain(lane.gpu or '')}"
        return host_name(LOCAL) if lane.gpu is None and lane.host.name == LOCAL else ""

    def on(self, lanes: Sequence[Lane]) -> str:
        """Return `on both cards`; "" if the run has only one lane and its card has no name."""
        return "" if self._is_only and not any(map(_has_name, lanes)) else f"on {self.all_of(lanes)}"

    def all_of(self, lanes: Sequence[Lane]) -> str:
        """Return a phrase for all these lanes: `the RTX 4090`, `both cards`, `all 3 hosts` or `old and new`."""
        if len(lanes) < 2 or set(lanes) != set(self._lanes) or self.kind(lanes) == _EITHER:
            return words.together([self.one(lane) for lane in lanes])
        return f"both {self.kinds(lanes)}" if len(lanes) == 2 else f"all {len(lanes)} {self.kinds(lanes)}"

    def kind(self, lanes: Sequence[Lane]) -> str:
        """Return the noun for these lanes: `card`, `host`, or `host or card` if only some of them have a GPU."""
        if all(lane.gpu is not None for lane in lanes):
            return "card"
        return "host" if all(lane.gpu is None for lane in lanes) else _EITHER

    def kinds(self, lanes: Sequence[Lane]) -> str:
        """Return the plural of `kind`."""
        return "hosts or cards" if self.kind(lanes) == _EITHER else f"{self.kind(lanes)}s"

    def blamed(self, lanes: Sequence[Lane]) -> str:
        """Return the card or host to blame: `the RTX 4090` or `host new`."""
        return words.together([self.one(lane) if lane.gpu else host_name(lane.host.name) for lane in lanes])

    def faults(self, lanes: Sequence[Lane]) -> str:
        """Return the possessive phrase: `the RTX 4090's fault` or `the fault of a and b`."""
        noun = self._noun(lanes[0]) if len(lanes) == 1 else ""
        return f"{noun}'s fault" if noun else f"the fault of {self.blamed(lanes)}"

    def good_with(self, attribution: Attribution) -> str:
        """Return where the bad images are good: `22.12 is good on the RTX 3090`, `the same images are good on …`."""
        image = version(attribution.images[0]) if len(attribution.images) == 1 else "the same images"
        verb = "is" if len(attribution.images) == 1 else "are"
        return f"{image} {verb} good on {words.together([self.one(lane) for lane in attribution.good_lanes])}"

    def passed(self, cell: Cell) -> str:
        """Return `1.2 passed 4 launches` for a cell that is good, though in too few launches to compare with; or ""."""
        tried = self._tried(cell)
        if tried is None or tried.verdict not in GOOD:
            return ""
        return f"{self._what(cell)} passed {numbers.count(tried.trials, 'launch')}"

    def way_out(self, cell: Cell) -> str:
        """Return how to settle the question with this cell: run it, or give it more steps."""
        what, tried = self._what(cell), self._tried(cell)
        if tried is not None and tried.verdict in UNSURE and tried.trials > 1:
            return f"{what} would settle it, but is {tried.verdict} after {tried.trials} launches: give it more steps"
        left_out = ", which the matrix leaves out," if cell.excluded is not None else ""
        return f"run {what}{left_out} to settle it"

    def _what(self, cell: Cell) -> str:
        return f"{version(cell.image.version)} {self.on([cell.lane])}".rstrip()

    def _tried(self, cell: Cell) -> CellVerdict | None:
        return next((entry.verdict for entry in self._cells if place_of_cell(entry.cell) == place_of_cell(cell)), None)


def _has_name(lane: Lane) -> bool:
    """Return whether the lane's GPU is selected by a name, rather than by a number, `all` or `each`."""
    return lane.gpu is not None and lane.gpu not in ("all", "each") and any(map(str.isalpha, lane.gpu))
