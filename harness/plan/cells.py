"""Selects the part of a matrix that a sweep runs, and plans its cells. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from harness.errors import InfrastructureError, UsageError
from harness.matrix.programs import among
from harness.model import (
    Cell,
    Host,
    Image,
    Install,
    Lane,
    Matrix,
    Plan,
    Scenario,
    SearchMode,
    Series,
    Stop,
    Trials,
    Variant,
    Varied,
    VersionRow,
    written,
)
from harness.model.matrix import Gpu


def select(
    matrix: Matrix,
    *,
    seed: int,
    only: Sequence[str] = (),
    hosts: Sequence[str] = (),
    series: Sequence[str] = (),
    trials: Trials | None = None,
    search: SearchMode = "full",
    stop: Stop | None = None,
) -> Plan:
    """Return the plan of a part of a matrix, in rows: by scenario, variant, series and lane, in the order of the file.
    Cells that are excluded have the reason. The lanes are those that the matrix names: GPUs are not known yet.

    `only` are patterns for `matches`; `hosts` and `series` are names; empty means all. Raises UsageError for a name or
    pattern that matches nothing.
    """
    chosen_hosts = _chosen(hosts, matrix.hosts, what="host")
    chosen_series = _chosen(series, matrix.series, what="series")
    rows = tuple(
        _row(matrix, variant, entry, lane)
        for variant in _chosen_variants(matrix, only)
        for entry in chosen_series
        if entry.name in (variant.scenario.series or (entry.name,))
        for host in chosen_hosts
        if host.name in (variant.scenario.hosts or (host.name,))
        for lane in _named_lanes(host)
    )
    if not rows:
        raise UsageError("no cell is left: no chosen scenario is for the chosen hosts and series; change these options")
    trials, stop = trials or matrix.trials, stop or matrix.stop
    return Plan(matrix=matrix, rows=rows, trials=trials, seed=seed, search=search, stop=stop)


def with_lanes(plan: Plan, lanes: Mapping[str, Sequence[Lane]]) -> Plan:
    """Return the plan with the lanes of the hosts whose GPUs are known (`choose_lanes`), by the name of the host. Other
    hosts keep those that the matrix names."""
    by_host = itertools.groupby(plan.rows, key=lambda row: (row.variant, row.series, row.lane.host))
    rows = tuple(
        _row(plan.matrix, variant, series, lane)
        for (variant, series, host), own in by_host
        for lane in lanes.get(host.name) or [row.lane for row in own]
    )
    return replace(plan, rows=rows)


def _row(matrix: Matrix, variant: Variant, series: Series, lane: Lane) -> VersionRow:
    cells = tuple(
        Cell(image=image, lane=lane, variant=variant, excluded=_excluded(matrix, image, lane.host, variant))
        for image in series.images
    )
    return VersionRow(series=series, lane=lane, variant=variant, cells=cells)


def only_versions(plan: Plan, wanted: Mapping[str, Collection[str]]) -> Plan:
    """Return the plan with only these versions, by series."""

    def kept(series: Series) -> Series:
        images = tuple(image for image in series.images if image.version in wanted.get(series.name, ()))
        return replace(series, images=images)

    rows = tuple(
        replace(
            row,
            series=kept(row.series),
            cells=tuple(cell for cell in row.cells if cell.image.version in wanted.get(row.series.name, ())),
        )
        for row in plan.rows
    )
    return replace(plan, matrix=replace(plan.matrix, series=tuple(map(kept, plan.matrix.series))), rows=rows)


def including(plan: Plan, cells: Collection[str]) -> Plan:
    """Return the plan with these cells (ids) included, even if the matrix excludes them, if they can run."""

    def kept(cell: Cell) -> Cell:
        unfit = _unfit(cell.image, cell.lane.host, cell.variant.scenario)
        return replace(cell, excluded=None) if cell.id in cells and unfit is None else cell

    rows = tuple(replace(row, cells=tuple(map(kept, row.cells))) for row in plan.rows)
    return replace(plan, rows=rows)


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


def _excluded(matrix: Matrix, image: Image, host: Host, variant: Variant) -> str | None:
    axes = {
        **dict(variant.params),
        "series": image.series,
        "image": image.version,
        "host": host.name,
        "scenario": variant.scenario.name,
    }
    for rule in matrix.exclude:
        if all(name in axes and among(axes[name], [value]) for name, value in rule.items() if name != "why"):
            return str(rule["why"])
    return _unfit(image, host, variant.scenario)


def _unfit(image: Image, host: Host, scenario: Scenario) -> str | None:
    """Return why an image can never run on a host, or a scenario with it; None if it can."""
    if isinstance(image.source, Varied):
        if not host.can.makes_environments:
            return "a command that is varied runs on the machine itself: use engine: process"
        if scenario.mounts:
            return "a command that is varied reads the files of the machine itself: remove mounts"
        return None if scenario.command else "only a command can be varied: write it as command: [python, train.py]"
    is_made = isinstance(image.source, Install)
    return (
        "needs a container engine, such as `engine: docker` of a host"
        if host.can.makes_environments and not is_made
        else None
    )


# ---------------------------------------------------------------- lanes


def _named_lanes(host: Host) -> list[Lane]:
    """Return the lanes of a host as the matrix names them."""
    names = (host.gpus,) if isinstance(host.gpus, str) else host.gpus
    return [Lane(host=host, gpu=None if name == "none" else name) for name in names]


MOST_GPUS = 64  # of a host: a larger number is not an index


def choose_lanes(host: Host, listed: Sequence[Gpu]) -> tuple[Lane, ...]:
    """Return the lanes of `host`: one without a GPU (`none`), one with all GPUs (`all`), or one per GPU (`each`, or a
    list of entries).

    An entry is an index, a UUID or MIG id (or its beginning), or a name in any case: the whole name of a card, else a
    part. For an entry that does not match exactly one GPU, raises InfrastructureError with the GPUs of the host, not a
    usage error: a card may have fallen off the bus, and the other hosts go on.
    """
    if host.gpus == "none":
        return (Lane(host=host),)
    if not listed:
        raise InfrastructureError(
            f"{host.where}.gpus: host {host.name} has no GPU; see `nvidia-smi` there, or use none"
        )
    if host.gpus == "all":
        return (Lane(host=host, gpu="all", gpus=tuple(listed)),)
    chosen = {gpu.uuid: gpu for gpu in listed} if host.gpus == "each" else _chosen_gpus(host, host.gpus, listed)
    return tuple(Lane(host=host, gpu=_label(gpu, listed, host), gpus=(gpu,)) for gpu in chosen.values())


def _chosen_gpus(host: Host, entries: Sequence[str], listed: Sequence[Gpu]) -> dict[str, Gpu]:
    """Return the GPUs that the entries mean, by UUID. Raises InfrastructureError."""
    chosen: dict[str, Gpu] = {}
    for number, entry in enumerate(entries):
        place = f"{host.where}.gpus[{number}]"
        matching = _meant(entry.strip(), listed)
        if not matching:
            there = "; ".join(map(str, listed))
            raise InfrastructureError(f"no GPU matches {entry!r} on host {host.name}; it has: {there}", place=place)
        gpu, *others = matching
        if others:
            there = "; ".join(map(str, matching))
            raise InfrastructureError(
                f"{entry!r} matches {len(matching)} GPUs on host {host.name}: {there}; name one by its UUID",
                place=place,
            )
        if gpu.uuid in chosen:
            first = entries[list(chosen).index(gpu.uuid)]
            raise InfrastructureError(f"{first!r} and {entry!r} are the same GPU, {gpu}; keep one", place=place)
        chosen[gpu.uuid] = gpu
    return chosen


def _meant(text: str, listed: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs that a text can mean: `0` is an index; `4090` is part of a name. A whole name, with or without
    the vendor, means only its own cards: `gtx 1080` is not a `GTX 1080 Ti`.
    """
    if text.startswith(("GPU-", "MIG-")):
        whole = [gpu for gpu in listed if text in (gpu.uuid, gpu.parent)]
        return whole or [gpu for gpu in listed if len(text) > 4 and gpu.uuid.startswith(text)]
    numbered = [gpu for gpu in listed if text == str(gpu.index)]
    if numbered or (text.isdecimal() and int(text) < MOST_GPUS):
        return numbered
    name = text.lower()
    named = [gpu for gpu in listed if name in gpu.name.lower()]
    return [g for g in named if g.name.lower().endswith(name) and name.endswith(g.short_name.lower())] or named


def _label(gpu: Gpu, listed: Sequence[Gpu], host: Host) -> str:
    """Return `RTX 4090`; for several cards of one name `RTX 4090 GPU-1a2b3c4d`, because an index may change; in a pool
    `RTX 4090 #2`, the second of each machine.
    """
    alike = [other.uuid for other in listed if other.short_name == gpu.short_name]
    if len(alike) == 1:
        return gpu.short_name
    if host.pool or host.machine:
        return f"{gpu.short_name} #{alike.index(gpu.uuid) + 1}"
    short = gpu.uuid[:12]
    return f"{gpu.short_name} {short if sum(uuid.startswith(short) for uuid in alike) == 1 else gpu.uuid}"
