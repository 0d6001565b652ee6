"""Lists the cells of a matrix in the order of a plan. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from harness.errors import UsageError
from harness.model import (
    Block,
    Cell,
    Excluded,
    Host,
    Image,
    Install,
    Lane,
    Matrix,
    Plan,
    Scalar,
    Scenario,
    SearchMode,
    Series,
    Stop,
    Trials,
    Variant,
    written,
)
from harness.reasons import PlanReason


def make_plan(
    matrix: Matrix,
    *,
    seed: int,
    only: Sequence[str] = (),
    hosts: Sequence[str] = (),
    series: Sequence[str] = (),
    trials: Trials | None = None,
    search: SearchMode = "full",
    lanes: Mapping[str, Sequence[Lane]] | None = None,
    stop: Stop | None = None,
) -> Plan:
    """Return the plan of all cells, in blocks: by scenario, variant, series and lane, in the order of the matrix file.

    `only` are patterns for `matches`; `hosts` and `series` are names; empty means all. `lanes` are the lanes of the
    hosts whose GPUs are known (`choose_lanes`); other hosts have the lanes that the matrix names. Raises UsageError for
    a name or pattern that matches nothing.
    """
    chosen_hosts = _chosen(hosts, matrix.hosts, what="host")
    chosen_series = _chosen(series, matrix.series, what="series")
    chosen_lanes = [lane for host in chosen_hosts for lane in (lanes or {}).get(host.name) or _lanes(host)]
    blocks = tuple(
        Block(series=entry, lane=lane, variant=variant, cells=_cells(matrix, entry, lane, variant))
        for variant in _chosen_variants(matrix, only)
        for entry in chosen_series
        if entry.name in (variant.scenario.series or (entry.name,))
        for lane in chosen_lanes
        if lane.host.name in (variant.scenario.hosts or (lane.host.name,))
    )
    if not blocks:
        raise UsageError("no cell is left: no chosen scenario is for the chosen hosts and series; change these options")
    return Plan(
        matrix=matrix, blocks=blocks, trials=trials or matrix.trials, seed=seed, search=search, stop=stop or matrix.stop
    )


def including(plan: Plan, cells: Collection[str]) -> Plan:
    """Return the plan with these cells (ids) included, even if the matrix excludes them, if they can run."""

    def kept(cell: Cell) -> Cell:
        return cell if cell.id not in cells or _needs_engine(cell.image, cell.lane) else replace(cell, excluded=None)

    blocks = tuple(replace(block, cells=tuple(map(kept, block.cells))) for block in plan.blocks)
    return replace(plan, blocks=blocks)


def variants(scenario: Scenario, include: Iterable[Mapping[str, Any]] = ()) -> Iterator[Variant]:
    """Yield every combination of the scenario's params, then those that `include` adds."""
    added = [rule for rule in include if rule["scenario"] == scenario.name]
    names = [name for name, _ in scenario.params]
    if names or not added:
        for values in itertools.product(*(values for _, values in scenario.params)):
            yield Variant(scenario=scenario, params=tuple(zip(names, values, strict=True)))
    for rule in added:
        yield Variant(scenario=scenario, params=tuple((name, rule[name]) for name in rule if name != "scenario"))


def matches(variant: Variant, pattern: str) -> bool:
    """Return whether a pattern matches a variant: `signal`, `sig*`, `signal op=rfft`, `input=*`.

    Every word must match: a word with a `=` one of the params, any other word the scenario's name. `*`, `?` and `[…]`
    are wildcards, as in file names. A pattern may also match the whole text, for values with spaces.
    """
    params = [f"{name}={written(value)}" for name, value in variant.params]

    def fits(word: str) -> bool:
        texts = params if "=" in word else [variant.scenario.name]
        return any(fnmatchcase(text, word) for text in texts)

    whole = " ".join([variant.scenario.name, *params])
    words = pattern.split()
    return fnmatchcase(whole, pattern) or (bool(words) and all(map(fits, words)))


def _chosen_variants(matrix: Matrix, only: Sequence[str]) -> list[Variant]:
    every = [variant for scenario in matrix.scenarios for variant in variants(scenario, matrix.include)]
    for pattern in only:
        if not any(matches(variant, pattern) for variant in every):
            names = ", ".join(scenario.name for scenario in matrix.scenarios)
            what = f"scenarios: {names}; a variant: {str(every[0])!r}"
            raise UsageError(f"--only {pattern!r} matches no scenario or variant; {what}")
    return [variant for variant in every if not only or any(matches(variant, pattern) for pattern in only)]


Named = TypeVar("Named", Host, Series)


def _chosen(names: Sequence[str], entries: Sequence[Named], *, what: str) -> list[Named]:
    existing = [entry.name for entry in entries]
    for name in names:
        if name not in existing:
            raise UsageError(f"--{what} {name!r}: the matrix has no such {what}; it has: {', '.join(existing)}")
    return [entry for entry in entries if not names or entry.name in names]


def _lanes(host: Host) -> list[Lane]:
    """Return the lanes of a host whose GPUs are unknown, by the names in the matrix."""
    names = (host.gpus,) if isinstance(host.gpus, str) else host.gpus
    return [Lane(host=host, gpu=None if name == "none" else name) for name in names]


# ---------------------------------------------------------------- cells


def _cells(matrix: Matrix, series: Series, lane: Lane, variant: Variant) -> tuple[Cell, ...]:
    """Return the cells of a block, oldest image first, including excluded ones, with the reason."""
    return tuple(
        Cell(image=image, lane=lane, variant=variant, excluded=_excluded(matrix, image, lane, variant))
        for image in series.images
    )


def _excluded(matrix: Matrix, image: Image, lane: Lane, variant: Variant) -> Excluded | None:
    axes = {
        **dict(variant.params),
        "series": image.series,
        "image": image.version,
        "host": lane.host.name,
        "scenario": variant.scenario.name,
    }
    for rule in matrix.exclude:
        if all(name in axes and _same(axes[name], value) for name, value in rule.items() if name != "why"):
            return Excluded(why=rule["why"])
    return Excluded(why=PlanReason.NEEDS_ENGINE()) if _needs_engine(image, lane) else None


def _needs_engine(image: Image, lane: Lane) -> bool:
    return lane.host.in_environments and not isinstance(image.source, Install)


def _same(a: Scalar, b: Scalar) -> bool:
    """Return whether two values of a param are the same; 1, 1.0 and True are three different values."""
    return type(a) is type(b) and a == b
