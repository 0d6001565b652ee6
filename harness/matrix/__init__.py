"""Reads matrix.yaml into a Matrix: what to run, where, and with which limits. Every error names file, line and key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from harness import model, package_index
from harness.errors import did_you_mean
from harness.matrix.problems import Context, KeyPath, listed, shown
from harness.matrix.read_scenarios import read_exclude, read_include, read_scenarios
from harness.matrix.read_series import SeriesReader
from harness.matrix.read_yaml import read_yaml
from harness.matrix.shape import LETTERS, SERIES_KINDS, HoldEntry, HostEntry, MatrixFile, schema
from harness.matrix.values import kind
from harness.registry.registry_client import Registry, TagSource


def load_matrix(
    path: Path, *, environ: Mapping[str, str], index: package_index.Index | None = None, tags: TagSource | None = None
) -> model.Matrix:
    """Read and check a matrix file, the scripts and folders it names, and its versions.

    `environ` fills in ${VARIABLES} and names the package index and Docker's logins, unless `index` and `tags` are
    given. Raises MatrixError with one line per problem, in order of line, and RegistryTrouble if a registry does not
    answer a query for tags.
    """
    file, context = _open(path, environ)
    reader = SeriesReader(
        context=context,
        index=index or package_index.PackageIndex.from_environ(environ),
        tags=tags or Registry.from_environ(environ),
    )
    series, hosts = reader.read(file), read_hosts(file, context)
    scenarios_read = read_scenarios(file, context, hosts=names_of(file))
    scenarios = tuple(each.scenario for each in scenarios_read)
    matrix = model.Matrix(
        name=_name(file, context),
        path=Path(context.file),
        series=series,
        hosts=hosts,
        scenarios=scenarios,
        include=read_include(file, scenarios_read, context),
        exclude=read_exclude(file, series, hosts, scenarios, context),
        trials=model.Trials(least=file.trials.least, most=file.trials.most),
        stop=model.Stop(first_bad=file.stop.until is not None, quick=file.stop.quick, time_s=file.stop.time),
    )
    context.raise_if_any()
    return matrix


def load_hosts(path: Path, *, environ: Mapping[str, str]) -> tuple[str, tuple[model.Host, ...]]:
    """Return a matrix's name and hosts only, without querying an index or a registry. Raises MatrixError."""
    file, context = _open(path, environ)
    hosts = read_hosts(file, context)
    context.raise_if_any()
    return _name(file, context), hosts


def _open(path: Path, environ: Mapping[str, str]) -> tuple[MatrixFile, Context]:
    context = read_yaml(path, environ=environ)
    return check_shape(context), context


def _name(file: MatrixFile, context: Context) -> str:
    """Return the matrix's name, changed so that it is valid for a folder on every system."""
    name = file.name or Path(context.file).stem
    return re.sub(rf"[^{LETTERS}._-]+", "-", name)[:64].strip(".-") or "matrix"


# ---------------------------------------------------------------- hosts


SLURM_KEYS = ("container", "select", "nodes", "nodes_per_trial", "hold", "images")
NO_MACHINES = {
    "process": "process is only this machine, but a pool has several machines; write engine: process",
    "slurm": "a cluster cannot be in a pool; write engine: slurm, and the number of `nodes`",
}
"""The message for each engine that cannot be in a pool."""
DEFAULT_NAME = "local"
"""Name of the host in a matrix without `hosts:`. Stored runs contain it."""


def read_hosts(file: MatrixFile, context: Context) -> tuple[model.Host, ...]:
    """Return all hosts, one for each named node of a cluster; without `hosts:`, this machine without containers."""
    if file.hosts is None:
        where = model.Where(file=context.file, line=1, key="hosts")
        return (model.Host(name=DEFAULT_NAME, engine="process", gpus="none", where=where),)
    hosts: list[model.Host] = []
    for name, entry in file.hosts.items():
        host, nodes = _host(name, entry, context), _nodes(entry)
        if entry.engine == "slurm":
            host = replace(host, request=_request(entry, ("hosts", name), context))
        if host.request is None or not nodes:
            hosts.append(host)
        else:
            hosts += [replace(host, name=f"{name}.{n}", request=replace(host.request, node=n)) for n in nodes]
    return tuple(hosts)


def names_of(file: MatrixFile) -> dict[str, tuple[str, ...]]:
    """Return the hosts that each name stands for: one for each named node of a cluster, else the host itself."""
    if file.hosts is None:
        return {DEFAULT_NAME: (DEFAULT_NAME,)}
    groups = {name: tuple(f"{name}.{node}" for node in _nodes(entry)) or (name,) for name, entry in file.hosts.items()}
    return {**{host: (host,) for group in groups.values() for host in group}, **groups}


def _nodes(entry: HostEntry) -> list[str]:
    return entry.nodes if isinstance(entry.nodes, list) else []


def _host(name: str, entry: HostEntry, context: Context) -> model.Host:
    key: KeyPath = ("hosts", name)
    engines = () if isinstance(entry.engine, str) else tuple(entry.engine)
    names = [model.machine_name(engine) for engine in engines]
    for number, engine in enumerate(engines):
        first = names.index(names[number])
        if engine in NO_MACHINES:
            context.add((*key, "engine", number), NO_MACHINES[engine])
        elif first < number:
            context.add((*key, "engine", number), f"{shown(engine)} is the same machine as engine[{first}]; keep one")
    pool = engines
    if entry.engine != "slurm":
        for each in (each for each in SLURM_KEYS if getattr(entry, each) is not None):
            context.add((*key, each), f"is for engine: slurm, not {entry.engine}; remove it")
    elif isinstance(entry.nodes, int) and entry.nodes > 1:
        pool = ("slurm",) * entry.nodes
    gpus = entry.gpus if isinstance(entry.gpus, str) else tuple(entry.gpus)
    if not isinstance(gpus, str) and len(set(gpus)) < len(gpus):
        context.add((*key, "gpus"), "a GPU is listed twice; keep one")
    for number, gpu in enumerate(gpus) if pool and not isinstance(gpus, str) else ():
        if gpu.startswith(("GPU-", "MIG-")):
            text = f"{shown(gpu)} is in one machine, but this host is a pool; name the GPU by its index or its name"
            context.add((*key, "gpus", number), text)
    if engines and entry.parallel not in ("auto", False):
        text = "the machines of a pool run at the same time, and the cards of each run one after the other; remove it"
        context.add((*key, "parallel"), text)
    return model.Host(
        name=name,
        engine=", ".join(engines) or str(entry.engine),
        gpus=gpus,
        where=context.where(*key),
        parallel=False if entry.parallel == 1 and entry.parallel is not True else entry.parallel,
        disk_bytes=entry.disk,
        pool=pool,
    )


def _request(entry: HostEntry, key: KeyPath, context: Context) -> model.NodeRequest:
    nodes, hold = _nodes(entry), entry.hold or HoldEntry()
    for position, node in enumerate(nodes):
        if node in nodes[:position]:
            context.add((*key, "nodes", position), f"{node} is listed twice; keep one")
    if entry.nodes_per_trial not in (None, 1) and (entry.nodes or entry.container not in (None, "none")):
        text = "is for a host without `nodes`, and with `container: none`; remove one of them"
        context.add((*key, "nodes_per_trial"), text)
    if entry.parallel not in ("auto", False):
        context.add((*key, "parallel"), "is not for engine: slurm; ask for several nodes instead")
    chosen = {} if entry.select is None else entry.select.model_dump(by_alias=True, exclude_none=True)
    return model.NodeRequest(
        container=entry.container or "none",
        select=tuple(chosen.items()),
        time_s=hold.time,
        wait_s=hold.wait,
        exclusive=hold.exclusive,
        nodes=entry.nodes_per_trial or 1,
        images=None if entry.images is None else context.folder / entry.images,
    )


# ---------------------------------------------------------------- pydantic's errors as problems in plain words


MARK = re.compile(r"\[key\]|<.*>", re.DOTALL)
WORDS = {
    "string_type": "must be text, not {got}",
    "dict_type": "must be a mapping, not {got}",
    "model_type": "must be a mapping, not {got}; its keys: {keys}",
    "model_attributes_type": "must be a mapping, not {got}; its keys: {keys}",
    "list_type": "must be a list, not {got}",
    "literal_error": "{got} is not allowed; allowed: {expected}",
    "too_short": "is empty; give at least one",
    "greater_than_equal": "{got} is too small; it must be at least {ge}",
    "less_than_equal": "{got} is too large; it must be at most {le}",
    "less_than": "{got} is too large; it must be less than {lt}",
    "value_error": "{error}",
    "missing": "is missing: {what}",
    "extra_forbidden": "unknown key{hint} allowed: {keys}",
    "union_tag_invalid": "must be {forms}, not {got}",
    "string_pattern_mismatch": "{shown} is not an allowed name; use letters and digits, and _ . - inside it",
    "series_kind": "does not say what its images are{hint} give {message}",
}


def check_shape(context: Context) -> MatrixFile:
    """Return a file's data as a MatrixFile. Raises MatrixError with everything that is wrong with its shape."""
    data = {} if context.data is None else context.data
    empty = list(_empty(data, ()))
    for path in empty:
        context.add(path, "has no value; give it one, or remove the key")
    try:
        file = MatrixFile.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            marked = detail["loc"]  # with pydantic's own marks, such as the tags of unions
            path = tuple(step for step in marked if isinstance(step, int) or not MARK.fullmatch(step))
            if path and path[-1] == "":
                context.add(path[:-1], "has an empty key; give it a name")
            elif path not in empty:
                context.add(path, _words(detail))
        raise context.error() from error
    context.raise_if_any()
    return file


def _empty(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    """Yield the keys without a value, for which pydantic would use the default. In params, null is a normal value."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if inner is None:
            yield (*path, key)
        elif key not in ("params", "include", "exclude"):
            yield from _empty(inner, (*path, key))


def _words(detail: ErrorDetails) -> str:
    code, last, got = detail["type"], str((detail["loc"] or ("",))[-1]), detail["input"]
    beside = _fields(detail["loc"][:-1])
    values: dict[str, Any] = {**detail.get("ctx", {}), "got": kind(got), "shown": shown(got), "message": detail["msg"]}
    if code == "missing":
        description = beside.get(last, "")
        values["what"] = f"{description[:1].lower()}{description[1:]}".removesuffix(".")
    elif code == "extra_forbidden":
        values["hint"], values["keys"] = did_you_mean(last, known=beside), listed(beside, most=30)
    elif code == "union_tag_invalid":  # "'<list>', '<text>'" are forms of a value
        forms = [form.strip(" '<>") for form in values["expected_tags"].split(",")]
        values["forms"] = " or ".join(form if form == "text" else f"a {form}" for form in forms)
    elif code == "series_kind":
        values["hint"] = did_you_mean(*(got if isinstance(got, dict) else ()), known=SERIES_KINDS)
    elif code.startswith("model_"):
        values["keys"] = listed(_fields(detail["loc"]), most=30)
    return WORDS.get(code, "{message}, not {got}").format(**values)


def _fields(path: tuple[int | str, ...]) -> dict[str, str]:
    """Return the keys that are allowed at one of pydantic's paths, with their descriptions."""
    annotation: Any = MatrixFile
    for step in path:
        annotation = _inside(annotation, step)
    model = _model(annotation)
    fields = model.model_fields if model else {}
    return {field.alias or name: field.description or "" for name, field in fields.items()}


def _inside(annotation: Any, step: int | str) -> Any:
    """Return the annotation that lies one step below another."""
    model = _model(annotation)
    if model:
        return model.model_fields[str(step)].annotation if step in model.model_fields else None
    if get_origin(annotation) is Annotated:
        return _inside(get_args(annotation)[0], step)
    if get_origin(annotation) in (dict, list):
        return get_args(annotation)[-1]
    members = [member for member in get_args(annotation) if member is not type(None)]
    tagged = [member for member in members if Tag(str(step)) in get_args(member)[1:]]
    if tagged:
        return tagged[0]
    return _inside(members[0], step) if members else None


def _model(annotation: Any) -> type[BaseModel] | None:
    """Return the model of an annotation, which may be optional; None if it is not a model."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    if get_origin(annotation) is Annotated:
        return _model(get_args(annotation)[0])
    members = [member for member in get_args(annotation) if member is not type(None)]
    return _model(members[0]) if get_origin(annotation) in (Union, UnionType) and len(members) == 1 else None
