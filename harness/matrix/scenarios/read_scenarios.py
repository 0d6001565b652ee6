"""Reads the file's scenarios into the model's scenarios, and checks their scripts and files."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness import model
from harness.matrix.keys import MatrixFile
from harness.matrix.keys import scenario_keys as keys
from harness.matrix.problems import KeyPath, shown, unknown_name
from harness.matrix.reading_context import Context
from harness.matrix.scenarios.programs import check_program, read_program
from harness.matrix.scenarios.read_probes import read_probes
from harness.matrix.scenarios.scripts import Script, read_python, read_script

MOST_VARIANTS = 10_000
AXES = ("series", "image", "host", "scenario", "why")
"""Keywords of include and exclude, which cannot be names of params."""


@dataclass(frozen=True, kw_only=True)
class ReadScenario:
    """A scenario and its parsed script or program (None for a command, or if it could not be read)."""

    scenario: model.Scenario
    script: Script | None


def read_scenarios(
    file: MatrixFile, context: Context, *, hosts: Mapping[str, tuple[str, ...]]
) -> tuple[ReadScenario, ...]:
    """Return all scenarios. `hosts`: the hosts that each name stands for. Problems are added to the context."""
    names = {"series": list(file.series), "hosts": list(hosts)}
    result = []
    for name, entry in file.scenarios.items():
        key: KeyPath = ("scenarios", name)
        for axis in ("series", "hosts"):
            for position, wanted in enumerate(getattr(entry, axis) or ()):
                if wanted not in names[axis]:
                    text = unknown_name(wanted, names[axis], what=axis.removesuffix("s") if axis == "hosts" else axis)
                    context.problems.add((*key, axis, position), text)
        script = _check_program(entry, key, context)
        _check_numbers(entry, key, context)
        included = any(
            "scenario" in rule and context.written("include", position, "scenario") == name
            for position, rule in enumerate(file.include)
        )
        _check_params(entry, script, key, context, included=included)
        meant = tuple(host for wanted in entry.hosts or () for host in hosts.get(wanted, (wanted,)))
        scenario = _scenario(name, entry, script, context, hosts=meant)
        result.append(ReadScenario(scenario=scenario, script=script))
    return tuple(result)


def _scenario(
    name: str, entry: keys.ScenarioEntry, script: Script | None, context: Context, *, hosts: tuple[str, ...]
) -> model.Scenario:
    key: KeyPath = ("scenarios", name)
    files = (context.existing(text, (*key, "files", position)) for position, text in enumerate(entry.files))
    ulimits = tuple((limit, pair.soft, pair.hard) for limit, pair in (entry.ulimits or {}).items())
    return model.Scenario(
        name=name,
        where=context.where(*key),
        title=script.title if script else "",
        script=context.folder / entry.script if entry.script else None,
        program=read_program(entry, context),
        command=tuple(entry.command or ()),
        step_pattern=entry.step_pattern,
        judge_exit=entry.judge == "exit",
        params=tuple((param, tuple(values)) for param, values in entry.params.items()),
        series=tuple(entry.series or ()),
        hosts=hosts,
        steps=model.Steps(first=entry.steps.first, budget=entry.steps.budget, time_s=entry.steps.time),
        limits=_limits(entry),
        timeout_s=entry.timeout,
        memory_bytes=entry.memory,
        shm_bytes=entry.shm_size,
        ulimits=model.Scenario.ulimits if entry.ulimits is None else ulimits,
        environment=tuple(entry.environment.items()),
        files=tuple(path for path in files if path),
        network=entry.network,
        cap_add=tuple(entry.cap_add),
        probes=read_probes(entry, key, context),
    )


def _limits(entry: keys.ScenarioEntry) -> model.Limits:
    limits = entry.limits
    given = {name: getattr(limits, key) for key, name in keys.KEYS_OF_LIMITS.items() if key in limits.model_fields_set}
    off = model.TIMES if given.get("step_time", 0.0) is None else ()
    return model.Limits(
        signals={**dict.fromkeys(off), **given},
        metrics=tuple(_metric_limit(metric, limit) for metric, limit in entry.metrics.items()),
        slowdown=limits.slowdown,
        setup_bad=limits.setup == "bad",
    )


def _metric_limit(metric: str, limit: keys.AnyMetricLimit) -> model.MetricLimit:
    if not isinstance(limit, keys.MetricLimitEntry):
        return model.MetricLimit(metric=metric, rule=limit)
    rule: model.MetricRule = "change" if limit.change else "drop" if limit.drop else "rise"
    return model.MetricLimit(metric=metric, rule=rule, limit=getattr(limit, rule))


# ---------------------------------------------------------------- the program


def _check_program(entry: keys.ScenarioEntry, key: KeyPath, context: Context) -> Script | None:
    """Return the parsed script or program; None for a command, or if it cannot be read."""
    given = [name for name in ("script", "program", "module", "command") if getattr(entry, name) is not None]
    if len(given) != 1:
        context.problems.add(key, "give exactly one of script, program, module and command")
    if entry.program is not None or entry.module is not None:
        return check_program(entry, key, context)
    for name in ("args", "steps_are", "printed"):
        if name in entry.model_fields_set:
            context.problems.add((*key, name), "is for a program or a module")
    if entry.script is not None:
        for name in ("step_pattern", "judge"):
            if getattr(entry, name) is not None:
                context.problems.add((*key, name), "is for a command; a script counts its steps itself")
        return read_python(entry.script, (*key, "script"), context, read_script)
    if entry.step_pattern is not None:
        try:
            re.compile(entry.step_pattern)
        except (re.error, OverflowError, RecursionError) as error:
            context.problems.add((*key, "step_pattern"), f"is not a regular expression: {error}")
    return None


def _check_numbers(entry: keys.ScenarioEntry, key: KeyPath, context: Context) -> None:
    """Check the numbers that limit each other."""
    steps = entry.steps
    if steps.budget < steps.first:
        text = f"{steps.budget} is less than first ({steps.first}); give at least as many"
        context.problems.add((*key, "steps", "budget"), text)
    if steps.time is not None and steps.time >= entry.timeout:
        text = f"{steps.time:g} s is not less than timeout ({entry.timeout:g} s), which must leave time for setup"
        context.problems.add((*key, "steps", "time"), text)
    for name, limit in (entry.ulimits or {}).items():
        if limit.hard != -1 and (limit.soft > limit.hard or limit.soft == -1):
            context.problems.add((*key, "ulimits", name), f"soft ({limit.soft}) is more than hard ({limit.hard})")


# ---------------------------------------------------------------- params


def _check_params(
    entry: keys.ScenarioEntry, script: Script | None, key: KeyPath, context: Context, *, included: bool
) -> None:
    """Check the params. `included`: `include` adds variants of this scenario, so that it needs no `params`."""
    count = math.prod(len(values) for values in entry.params.values())
    if count > MOST_VARIANTS:
        text = f"{count} combinations; at most {MOST_VARIANTS}: give fewer values"
        context.problems.add((*key, "params"), text)
    for name, values in entry.params.items():
        place = (*key, "params", name)
        if problem := name_problem(name):
            context.problems.add(place, problem)
        seen: list[model.Scalar] = []
        for position, value in enumerate(values):
            if value in seen:
                earlier = seen[seen.index(value)]
                text = "appears twice" if type(value) is type(earlier) else f"is equal to {shown(earlier)} in Python"
                context.problems.add((*place, position), f"{shown(value)} {text}; keep one")
            seen.append(value)
            if script and (wrong := script.wrong_value(name, value)):
                context.problems.add((*place, position), wrong)
        parts = entry.command or (None if entry.script else entry.args)
        if parts is not None and not any(f"{{{name}}}" in part for part in parts):
            what = "the command has" if entry.command else "args have"
            text = f"{what} no '{{{name}}}', so all of its variants would be the same; put it there"
            context.problems.add(place, text)
    if script and (entry.params or not included):
        check_names(entry.params, script, (*key, "params"), context)


def check_names(names: Collection[str], script: Script, key: KeyPath, context: Context) -> None:
    """Check that setup can be called with these params."""
    for name, text in script.wrong_names(names):
        context.problems.add((*key, name) if name else key, text)


def name_problem(name: str) -> str | None:
    """Return why a parameter cannot have this name, or None."""
    if not name.isidentifier() or keyword.iskeyword(name):
        return f"{shown(name)} cannot name a parameter; use letters, digits and _, and do not begin with a digit"
    return f"{name!r} has another meaning in exclude; rename the parameter" if name in AXES else None
