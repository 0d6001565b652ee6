"""Reads `include` and `exclude`: additional variants, and cells to leave out.

As in a matrix of GitHub Actions, a rule of `exclude` leaves out every cell that it matches; the fewer axes it names,
the more cells it matches. Differences: `include` only adds variants to a scenario, and `exclude` applies to those as
well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness import model
from harness.errors import did_you_mean
from harness.matrix.problems import Context, KeyPath, listed, shown, unknown_name
from harness.matrix.programs import among
from harness.matrix.read_scenarios import AXES, ReadScenario, check_names, name_problem
from harness.matrix.shape import MatrixFile

IncludeRule = Mapping[str, Any]


def read_include(file: MatrixFile, scenarios: Sequence[ReadScenario], context: Context) -> tuple[IncludeRule, ...]:
    """Return the rules of include, each with a scenario and the params of one variant."""
    by_name = {read.scenario.name: read for read in scenarios}
    result: list[IncludeRule] = []
    for position, rule in enumerate(file.include):
        key: KeyPath = ("include", position)
        if rule in file.include[:position]:
            context.add(key, "appears twice; keep one")
        for axis in {"series", "image", "host"} & rule.keys():
            text = "include adds a variant to a scenario, for all its images and hosts; use exclude to leave cells out"
            context.add((*key, axis), text)
        name = str(context.written(*key, "scenario")) if "scenario" in rule else None
        read = None if name is None else by_name.get(name)
        if read is None:
            text = "is missing" if name is None else unknown_name(name, by_name, what="scenario")
            context.add((*key, "scenario"), text)
        else:
            _check_variant(rule, read, key, context)
        result.append({**rule, "scenario": name})
    return tuple(result)


def _check_variant(rule: IncludeRule, read: ReadScenario, key: KeyPath, context: Context) -> None:
    params = {name: value for name, value in rule.items() if name not in ("scenario", "series", "image", "host")}
    for name, value in params.items():
        if problem := name_problem(name):
            context.add((*key, name), problem)
        elif read.script and (wrong := read.script.wrong_value(name, value)):
            context.add((*key, name), wrong)
    if read.script:
        check_names(params, read.script, key, context)
    values = dict(read.scenario.params)
    if params.keys() == values.keys() and all(among(value, values[name]) for name, value in params.items()):
        context.add(key, f"scenario {read.scenario.name} has this variant already; remove it here")


def read_exclude(file: MatrixFile, series: Sequence[model.Series], hosts: Sequence[model.Host],
                 scenarios: Sequence[model.Scenario], context: Context) -> tuple[IncludeRule, ...]:  # fmt: skip
    """Return the rules of exclude, each with a `why`. Every axis and value must be one that a cell can have."""
    result = []
    for position, rule in enumerate(file.exclude):
        key: KeyPath = ("exclude", position)
        axes = {name: value for name, value in rule.items() if name != "why"}
        if not axes:
            context.add(key, "names no axis, and would leave out everything; give series, image, host, …")
        within = [s for s in scenarios if axes.get("scenario") in (None, s.name)] or scenarios
        all_read = all(s.images for s in series)  # otherwise an image may only appear to be unknown
        images = [i for s in series if all_read and axes.get("series") in (None, s.name) for i in s.images]
        possible: dict[str, Sequence[model.Scalar]] = {
            "series": [entry.name for entry in series],
            "image": [image.version for image in images],
            "host": [host.name for host in hosts],
            "scenario": [scenario.name for scenario in scenarios],
            **_values_of_params(within, file.include),
        }
        text = {name: context.written(*key, name) if name in AXES else value for name, value in axes.items()}
        for name, value in text.items():
            _check_axis(name, value, possible, key, context)
        why = rule.get("why")
        if why is not None and not isinstance(why, str):
            context.add((*key, "why"), f"must be text, not {shown(why)}")
        where = context.where(*key)
        result.append({**text, "why": why or f"left out by {where}"})
    return tuple(result)


def _values_of_params(
    scenarios: Sequence[model.Scenario], include: Sequence[IncludeRule]
) -> dict[str, list[model.Scalar]]:
    possible: dict[str, list[model.Scalar]] = {}
    for scenario in scenarios:
        for name, values in scenario.params:
            possible.setdefault(name, []).extend(values)
    names = {scenario.name for scenario in scenarios}
    for rule in include:
        for name, value in rule.items() if str(rule.get("scenario")) in names else ():
            if name != "scenario":
                possible.setdefault(name, []).append(value)
    return possible


def _check_axis(name: str, value: model.Scalar, possible: Mapping[str, Sequence[model.Scalar]], key: KeyPath,
                context: Context) -> None:  # fmt: skip
    if name not in possible:
        text = f"unknown axis{did_you_mean(name, known=possible)} known: {listed(possible)}, why"
        context.add((*key, name), text)
    elif possible[name] and not among(value, possible[name]):
        values = list(dict.fromkeys(possible[name]))
        text = f"no cell has {name} {shown(value)}; known: {listed(values)}"
        context.add((*key, name), text)
