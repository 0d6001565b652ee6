"""Writes the attributions of a run for result.json, by reference to its findings and its plan, and reads them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.model import Attribution, Cell, Finding, Host, Lane, Plan, RunResult, Variant
from harness.model.attributed import lane_bounds
from harness.store.json_files import first_problem

_ATTRIBUTIONS = TypeAdapter(tuple[Attribution, ...])


def attributions_json(result: RunResult) -> Any:
    """Return the attributions as plain data. Findings and variants are referred to by their position in the result and
    in the plan, cells by their ids, lanes by their names.
    """
    findings = {finding: number for number, finding in enumerate(result.findings)}
    variants = {variant: number for number, variant in enumerate(_variants(result.plan))}

    def plain(value: Any) -> Any:
        match value:
            case Finding():
                return {"finding": findings[value]}
            case Variant():
                return {"variant": variants[value]}
            case Cell():
                return {"cell": value.id}
            case Lane():
                return {"lane": str(value)}
            case tuple():
                return list(map(plain, value))
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)} if is_dataclass(value) else value

    return plain(result.attribution)


def attributions_of(entries: Any, plan: Plan, findings: Sequence[Finding]) -> tuple[Attribution, ...]:
    """Return the attributions from plain data. Raises ValueError for anything but what `attributions_json` returns."""
    known: Mapping[str, Mapping[Any, Any]] = {
        "finding": dict(enumerate(findings)),
        "variant": dict(enumerate(_variants(plan))),
        "cell": {cell.id: cell for cell in plan.cells},
        "lane": {str(row.lane): row.lane for row in plan.rows},
    }

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(whole, value))
        if not isinstance(value, dict):
            return value
        kind, *others = value
        if others or kind not in known:
            return {name: whole(each) for name, each in value.items()}
        name = value[kind]
        return known[kind][name] if kind != "lane" or name in known[kind] else _left_out(name, plan)

    try:
        attributions = _ATTRIBUTIONS.validate_python(whole(entries))
        for attribution in attributions:
            _check(attribution, plan)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else error
        raise ValueError(f"an attribution that the plan and the findings do not allow: {problem}") from error
    return attributions


def _variants(plan: Plan) -> list[Variant]:
    return list(dict.fromkeys(row.variant for row in plan.rows))


def _check(attribution: Attribution, plan: Plan) -> None:
    """Raise LookupError or ValueError for an attribution that reports could not describe."""
    rows = {(row.series.name, row.lane, row.variant): row for row in plan.rows}
    for episode in attribution.episodes:
        if episode.begins is None and episode.ends is None:
            raise ValueError("an episode without findings")
        finding = episode.finding
        row = rows[attribution.series, finding.lane, finding.variant]
        if finding.series != attribution.series or len(episode.states) != len(row.cells):
            raise ValueError("an episode of another row")
    if not (attribution.episodes and attribution.variants and attribution.bad_lanes):
        raise ValueError("no episodes, variants or lanes")
    lane_bounds(attribution, {cell.image.version: place for place, cell in enumerate(row.cells)})


def _left_out(name: str, plan: Plan) -> Lane:
    """Return the lane of a host of the matrix that the run left out; only the host's name is stored."""
    if not isinstance(name, str):
        raise ValueError("the name of a lane is not a text")
    return Lane(host=Host(name=name, engine="", gpus="none", where=plan.matrix.series[0].where))
