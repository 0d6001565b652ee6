"""Finds which probes are run in which cells: those that the scenarios ask for, each search for a largest size once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness.model import Cell, Probe, Scenario
from harness.probes.largest import family_of


def asked_probes(scenario: Scenario, names: Sequence[str]) -> list[Probe]:
    """Return the probes of a scenario; if `names` is not empty, only those."""
    return [each for each in scenario.probes if not names or each.name in names]


def nothing_asked(scenarios: Iterable[Scenario], names: Sequence[str]) -> str:
    """Return the message that no scenario asks for a probe of these names."""
    known = "; ".join(f"{one.name}: {', '.join(each.name for each in one.probes) or 'none'}" for one in scenarios)
    what = f"probe {' or '.join(names)}" if names else "probes"
    return f"no selected scenario has {what} (scenarios.NAME.probes); they have: {known}"


def probes_to_run(cells: Iterable[Cell], names: Sequence[str]) -> Iterator[tuple[Cell, Probe]]:
    """Yield the probes cell by cell. Cells that differ only in the param that `largest` searches share one search."""
    searched: set[str] = set()
    for cell in cells:
        for probe in () if cell.excluded else asked_probes(cell.variant.scenario, names):
            family = family_of(cell, probe) if probe.name == "largest" else None
            if family not in searched:
                yield cell, probe
            if family is not None:
                searched.add(family)
