"""Checks the file's scenarios with their scripts, files and mounts, and reads the rules that add
variants (`include`) and leave out cells (`exclude`).

As in a matrix of GitHub Actions, a rule of `exclude` leaves out every cell that it matches; the fewer axes it names,
the more cells it matches. Differences: `include` only adds variants to a scenario, and `exclude` applies to those as
well.
"""

from __future__ import annotations

import keyword
import math
import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness import model
from harness.env_files import read_env_file
from harness.errors import did_you_mean
from harness.matrix.context import Context, KeyPath, listed, unknown_name
from harness.matrix.programs import Script, among, read_script_or_program
from harness.matrix.read_hosts import DEFAULT_NAME
from harness.matrix.shape import MatrixFile, Varies
from harness.model.forms import shown

MOST_VARIANTS = 10_000
AXES = ("series", "image", "host", "scenario", "why")
"""Keywords of include and exclude, which cannot be names of params."""
IncludeRule = Mapping[str, Any]


def read_scenarios(
    file: MatrixFile, context: Context, *, hosts: Mapping[str, tuple[str, ...]], environ: Mapping[str, str]
) -> tuple[tuple[model.Scenario, ...], Mapping[str, Script]]:
    """Return all scenarios, and the scripts and programs that could be read, by the names of their scenarios. `hosts`:
    the hosts that each name stands for; `environ`: the variables that a line of an env file may name. Problems are
    added to the context."""
    names = {"series": list(file.series), "hosts": list(hosts)}
    included = {
        context.written("include", at, "scenario") for at, rule in enumerate(file.include) if "scenario" in rule
    }
    scenarios, scripts = [], {}
    for name, scenario in file.scenarios.items():
        key: KeyPath = ("scenarios", name)
        for axis, what in (("series", "series"), ("hosts", "host")):
            for position, wanted in enumerate(getattr(scenario, axis)):
                if wanted not in names[axis]:
                    context.add((*key, axis, position), unknown_name(wanted, names[axis], what=what))
        series = [file.series[name] for name in scenario.series or file.series if name in file.series]
        in_place = all(isinstance(entry, Varies) for entry in series)
        script = read_script_or_program(scenario, key, context, in_place=in_place)
        time_s, timeout_s = scenario.steps.time_s, scenario.timeout_s
        if time_s is not None and time_s >= timeout_s:
            text = f"{time_s:g} s is not less than timeout ({timeout_s:g} s), which must leave time for setup"
            context.add((*key, "steps", "time"), text)
        for position in range(len(scenario.files)):
            context.existing((*key, "files", position))
        if scenario.folder is not None:
            context.existing((*key, "folder"))
        _check_mounts(scenario, key, context, file)
        _check_params(scenario, script, key, context, included=name in included)
        _check_probes(scenario, key, context)
        meant = tuple(host for wanted in scenario.hosts for host in hosts.get(wanted, (wanted,)))
        if script is not None:
            scripts[name] = script
        title = script.title if script else ""
        secrets = _secrets(scenario, key, context, environ)
        secret_names = tuple(name for name, _ in secrets)
        scenarios.append(replace(scenario, title=title, hosts=meant, secrets=secrets, secret_names=secret_names))
    return tuple(scenarios), scripts


def _secrets(
    scenario: model.Scenario, key: KeyPath, context: Context, environ: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return the variables of the scenario's env file."""
    if scenario.env_file is None or context.existing((*key, "env_file")) is None:
        return ()
    text = shown(context.written(*key, "env_file"))
    try:
        return read_env_file(scenario.env_file, environ)
    except ValueError as error:
        context.add((*key, "env_file"), f"{text}: {error}")
    except OSError as error:
        context.add((*key, "env_file"), f"{text}: cannot be read: {error.strerror}")
    return ()


# ---------------------------------------------------------------- data and caches

TAKEN = re.compile(r"/|/(proc|sys|dev)(/.*)?|/\.harness.*")
"""Places that a mount cannot take: the kernel's and the harness's own."""


def _check_mounts(scenario: model.Scenario, key: KeyPath, context: Context, file: MatrixFile) -> None:
    """Check the mounts of a scenario. Problems are added to the context."""
    bare = _meant(scenario, file, lambda host: host.can.makes_environments)
    if file.hosts is None:
        bare = [DEFAULT_NAME]
    without = _meant(scenario, file, lambda host: not host.can.keeps_caches)
    copied = {str(scenario.place_of(path)) for path in scenario.carried}
    places, names = list[str](), list[str]()
    for position, mount in enumerate(scenario.mounts):
        place, at = (*key, "mounts", position, "at"), posixpath.normpath(mount.at)
        source = None if isinstance(mount, model.Cache) else str(mount.source)
        is_home = at == "~" or (at.startswith("~/") and source is not None)  # only caches can be in it
        if at != (mount.at.rstrip("/") or "/") or at.split("/")[0] in ("..", ".") or is_home:
            context.add(place, f"{shown(mount.at)}: write a plain path, such as /data or data")
        elif TAKEN.fullmatch(at):
            context.add(place, f"{shown(mount.at)} cannot be mounted over; choose another path, such as /data")
        elif at in copied:
            context.add(place, f"{shown(mount.at)} is a file of the scenario, too; choose another path")
        elif (other := next((one for one in places if _is_below(at, one) or _is_below(one, at)), None)) is not None:
            context.add(place, f"{shown(mount.at)} is where {other} is mounted, too; choose another path")
        elif bare and mount.is_absolute and at != source:
            what = f"host {bare[0]} has no containers, so that no path of its own can be replaced there"
            link = f"{posixpath.basename(at)}, which becomes a link in the folder of the launch"
            home = f"~/{posixpath.basename(at)}, in its home"
            context.add(place, f"{what}; write {link}, or {source or home}")
        places.append(at)
        if isinstance(mount, model.Cache):
            if bare and at.startswith("~/") and any(name == "HOME" for name, _ in scenario.environment):
                context.add(place, f"{shown(mount.at)} needs the home of the launch; leave HOME out of the environment")
            if without:
                text = f"the engine of host {without[0]} keeps no caches; name other hosts, with hosts: of the scenario"
                context.add((*key, "mounts", position), text)
            if mount.name in names:
                context.add((*key, "mounts", position, "cache"), f"{mount.name} appears twice; give it another name")
            names.append(mount.name)


def _meant(scenario: model.Scenario, file: MatrixFile, fits: Callable[[model.Host], bool]) -> list[str]:
    """Return the names of the hosts of a scenario that fit."""
    wanted = [name.partition(".")[0] for name in scenario.hosts]
    named = [name for name, host in (file.hosts or {}).items() if fits(host)]
    return [name for name in named if not wanted or name.partition(".")[0] in wanted]


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


# ---------------------------------------------------------------- params


def _check_params(
    scenario: model.Scenario, script: Script | None, key: KeyPath, context: Context, *, included: bool
) -> None:
    """Check the params. `included`: `include` adds variants of this scenario, so that it needs no `params`."""
    count = math.prod(len(values) for _, values in scenario.params)
    if count > MOST_VARIANTS:
        text = f"{count} combinations; at most {MOST_VARIANTS}: give fewer values"
        context.add((*key, "params"), text)
    for name, values in scenario.params:
        place = (*key, "params", name)
        if problem := name_problem(name):
            context.add(place, problem)
        seen: list[model.Scalar] = []
        for position, value in enumerate(values):
            if value in seen:
                earlier = seen[seen.index(value)]
                text = "appears twice" if type(value) is type(earlier) else f"is equal to {shown(earlier)} in Python"
                context.add((*place, position), f"{shown(value)} {text}; keep one")
            seen.append(value)
            if script and (wrong := script.wrong_value(name, value)):
                context.add((*place, position), wrong)
        parts = scenario.command or (*scenario.args, *scenario.launcher, *scenario.serve, *scenario.generator)
        sent = [(each.get, each.post, each.json_text, each.body) for each in scenario.request]
        parts = (*parts, *dict(scenario.environment).values(), *(text for texts in sent for text in texts if text))
        is_load = bool(scenario.serve) and name in model.LOAD and not scenario.generator
        may_be_sent = scenario.client_script is not None or scenario.requests is not None
        if (
            scenario.script is None
            and not (is_load or may_be_sent)
            and not any(f"{{{name}}}" in part for part in parts)
        ):
            what = "the command has" if scenario.command else "args have"
            what = "serve and request have" if scenario.serve else what
            what = "serve and client have" if scenario.generator else what
            text = f"{what} no '{{{name}}}', so all of its variants would be the same; put it there, or in environment"
            context.add(place, text)
    if script and (scenario.params or not included):
        check_names(dict(scenario.params), script, (*key, "params"), context)


def check_names(names: Collection[str], script: Script, key: KeyPath, context: Context) -> None:
    """Check that setup can be called with these params."""
    for name, text in script.wrong_names(names):
        context.add((*key, name) if name else key, text)


def name_problem(name: str) -> str | None:
    """Return why a parameter cannot have this name, or None."""
    if not name.isidentifier() or keyword.iskeyword(name):
        return f"{shown(name)} cannot name a parameter; use letters, digits and _, and do not begin with a digit"
    return f"{name!r} has another meaning in exclude; rename the parameter" if name in AXES else None


# ---------------------------------------------------------------- probes


def _check_probes(scenario: model.Scenario, key: KeyPath, context: Context) -> None:
    for probe in scenario.probes:
        place, settings = (*key, "probes", probe.name), dict(probe.settings)
        if scenario.is_program:
            context.add(place, "is for a script or a command; a program has no probes")
        elif scenario.script is None and (scenario.serve or probe.name != "valgrind"):
            context.add(place, "is for a script; a command can have valgrind")
        steps = context.written(*place).get("at", ()) if probe.name == "optrace" else ()
        for position, step in enumerate(steps):
            if step in steps[:position]:
                context.add((*place, "at", position), f"{step} appears twice; keep one")
        if probe.name == "largest":
            params, param = dict(scenario.params), settings["param"]
            if param not in params:
                context.add((*place, "param"), unknown_name(param, list(params), what="param"))
            elif not all(isinstance(value, int) and not isinstance(value, bool) for value in params[param]):
                context.add((*place, "param"), f"the values of {param} must be whole numbers to be compared")


# ---------------------------------------------------------------- include and exclude


def read_include(
    file: MatrixFile, scenarios: Sequence[model.Scenario], scripts: Mapping[str, Script], context: Context
) -> tuple[IncludeRule, ...]:
    """Return the rules of include, each with a scenario and the params of one variant."""
    by_name = {scenario.name: scenario for scenario in scenarios}
    result: list[IncludeRule] = []
    for position, rule in enumerate(file.include):
        key: KeyPath = ("include", position)
        if rule in file.include[:position]:
            context.add(key, "appears twice; keep one")
        for axis in {"series", "image", "host"} & rule.keys():
            text = "include adds a variant to a scenario, for all its images and hosts; use exclude to leave cells out"
            context.add((*key, axis), text)
        name = str(context.written(*key, "scenario")) if "scenario" in rule else None
        if name is None or name not in by_name:
            text = "is missing" if name is None else unknown_name(name, by_name, what="scenario")
            context.add((*key, "scenario"), text)
        else:
            params = {name: value for name, value in rule.items() if name not in AXES[:-1]}
            _check_variant(params, by_name[name], scripts.get(name), key, context)
        result.append({**rule, "scenario": name})
    return tuple(result)


def _check_variant(
    params: IncludeRule, scenario: model.Scenario, script: Script | None, key: KeyPath, context: Context
) -> None:
    for name, value in params.items():
        if problem := name_problem(name):
            context.add((*key, name), problem)
        elif script and (wrong := script.wrong_value(name, value)):
            context.add((*key, name), wrong)
    if script:
        check_names(params, script, key, context)
    values = dict(scenario.params)
    if params.keys() == values.keys() and all(among(value, values[name]) for name, value in params.items()):
        context.add(key, f"scenario {scenario.name} has this variant already; remove it here")


def read_exclude(
    file: MatrixFile,
    series: Sequence[model.Series],
    hosts: Sequence[model.Host],
    scenarios: Sequence[model.Scenario],
    context: Context,
) -> tuple[IncludeRule, ...]:
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
        possible: dict[str, list[model.Scalar]] = {
            "series": [entry.name for entry in series],
            "image": [image.version for image in images],
            "host": [host.name for host in hosts],
            "scenario": [scenario.name for scenario in scenarios],
        }
        for name, values in (param for scenario in within for param in scenario.params):
            possible.setdefault(name, []).extend(values)
        of = {scenario.name for scenario in within}
        for added in (added for added in file.include if str(added.get("scenario")) in of):
            for name in added.keys() - {"scenario"}:
                possible.setdefault(name, []).append(added[name])
        text = {name: context.written(*key, name) if name in AXES else value for name, value in axes.items()}
        for name, value in text.items():
            if name not in possible:
                known = f"unknown axis{did_you_mean(name, known=possible)} known: {listed(possible)}, why"
                context.add((*key, name), known)
            elif possible[name] and not among(value, possible[name]):
                known = listed(dict.fromkeys(possible[name]))
                context.add((*key, name), f"no cell has {name} {shown(value)}; known: {known}")
        why = rule.get("why")
        if why is not None and not isinstance(why, str):
            context.add((*key, "why"), f"must be text, not {shown(why)}")
        result.append({**text, "why": why or f"left out by {context.where(*key)}"})
    return tuple(result)
