"""What a sweep's summary.json says about a planted or a healthy program: one word, and the findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.planted_programs.catalogue import Planted
from benchmarks.planted_sweeps import BEFORE, FIRST_BAD, Swept
from harness.model import BAD, UNSURE

PLANTED_ANSWERS = ("named", "seen", "unsure", "missed")
HEALTHY_ANSWERS = ("accused", "unsure", "good")
UNTOLD = {*UNSURE, "untested"}


def answer(program: Planted, scenario: str, swept: Swept) -> tuple[str, str]:
    """Return `named`, `seen`, `unsure` or `missed`, and the findings. An observation is `named` if it is reported."""
    findings, cells = _of(scenario, swept)
    said = "; ".join(_words(one) for one in findings)
    if program.told:
        reported = program.told in swept.told and not findings
        return ("named" if reported else "seen" if findings else "missed"), said or ("reported" if reported else "")
    if any(_is_right(one, program) for one in findings):
        return "named", said
    suspects = [cell for cell in cells if cell["image"] >= FIRST_BAD]
    verdicts = {cell["verdict"] for cell in suspects}
    if findings or verdicts & BAD:
        return "seen", said or ", ".join(sorted(verdicts))
    if verdicts & UNTOLD or any(_in_doubt(cell, program) for cell in suspects):
        return "unsure", ", ".join(sorted(verdicts))
    return "missed", ""


def accused(program: Planted, scenario: str, swept: Swept) -> tuple[str, str]:
    """Return `accused`, `unsure` (the verdict of a cell is not good) or `good`, and the findings and blind signals."""
    findings, cells = _of(scenario, swept)
    verdicts = {cell["verdict"] for cell in cells}
    said = "; ".join([_words(one) for one in findings] + sorted(verdicts & (BAD | UNTOLD)))
    blind = sorted({name for cell in cells for name, one in _signals(cell).items() if one.get("seen") == "blind"})
    if findings or verdicts & BAD:
        return "accused", said
    told = "; ".join(filter(None, [said, f"blind: {', '.join(blind)}" if blind else ""]))
    return ("unsure" if verdicts & UNTOLD else "good"), told


def _of(scenario: str, swept: Swept) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    findings, cells = swept.summary["findings"], swept.summary["cells"]
    return [one for one in findings if one["scenario"] == scenario], [
        one for one in cells if one["scenario"] == scenario
    ]


def _is_right(finding: Mapping[str, Any], program: Planted) -> bool:
    places = (finding.get("last_good"), finding.get("first_bad"))
    return finding["metric"] in program.rightly and places == (BEFORE, FIRST_BAD)


def _in_doubt(cell: Mapping[str, Any], program: Planted) -> bool:
    """Return whether the planted signal is suspect or blind in a cell."""
    signals = _signals(cell)
    return any(signals.get(name, {}).get("seen") in ("suspect", "blind") for name in program.rightly)


def _signals(cell: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the signals of a cell; summaries of older harnesses have none."""
    return cell.get("signals") or {}


def _words(finding: Mapping[str, Any]) -> str:
    sides = [
        finding[name] for name in ("last_good", "first_bad", "last_bad", "first_good", "oldest_bad") if name in finding
    ]
    kind = "" if "first_bad" in finding else f"{finding['kind']} "
    return f"{kind}{finding['metric']} {'>'.join(sides)}"
