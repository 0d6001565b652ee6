"""Reads the file's hosts. The keys that only one engine has are read by the record of its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, cast, get_type_hints

from pydantic import GetCoreSchemaHandler, TypeAdapter, ValidationError, ValidationInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from harness import model
from harness.matrix.context import Context, KeyPath
from harness.model.forms import Given, Json, inlined, shown

DEFAULT_NAME = "local"
"""Name of the host in a matrix without `hosts:`. Stored runs contain it."""


class _WithSettings:
    """Marks a Host, whose mapping in the file also has the keys of its engine's settings."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(_read_host, handler(source))


AnyHost = Annotated[model.Host, _WithSettings()]


@cache
def _reader(engine: str) -> TypeAdapter[Any]:
    """Return the reader of the settings of an engine."""
    return TypeAdapter(cast("Any", model.known_engines()[engine].settings))


@cache
def _owners() -> Mapping[str, str]:
    """Return the engine of each key that only the hosts of an engine have."""
    kinds = model.known_engines().items()
    hints = {name: get_type_hints(kind.settings, include_extras=True) for name, kind in kinds if kind.settings}
    marks = [(name, key, getattr(own, "__metadata__", ())) for name, of in hints.items() for key, own in of.items()]
    owners = {next((mark.alias for mark in own if getattr(mark, "alias", "")), key): name for name, key, own in marks}
    return {key: name for key, name in owners.items() if key != "can"}  # which no file has


def settings_schemas() -> list[Json]:
    """Return the JSON Schemas of the engines' settings."""
    return [inlined(_reader(name)) for name, kind in model.known_engines().items() if kind.settings is not None]


def _read_host(value: Any, read: Callable[[Any], model.Host], info: ValidationInfo) -> model.Host:
    """Return a host of a matrix file, with the settings of its engine. Raises ValidationError."""
    if info.context is None or not isinstance(value, dict):
        return read(value)
    engine, found = value.get("engine"), list[Any]()
    has_settings = isinstance(engine, str) and model.engine_kind(engine).settings is not None
    owners = _owners()
    theirs = {key: value[key] for key in value if key in owners}
    own = {key: value[key] for key in value if key not in owners}
    if isinstance(engine, list):
        own["pool"] = Given(tuple(str(getattr(each, "written", each)) for each in engine))
    if not has_settings:
        for key, given in theirs.items():
            text = f"is for engine: {owners[key]}, not {engine}; remove it"
            wrong = PydanticCustomError("of_another_engine", "{text}", {"text": text})
            found.append(InitErrorDetails(type=wrong, loc=(key,), input=given))
    else:
        try:
            own["settings"] = Given(_reader(engine).validate_python(theirs, context=info.context))
        except ValidationError as error:
            found += error.errors(include_url=False)
    try:
        host = read(own)
    except ValidationError as error:
        found += error.errors(include_url=False)
    if found:
        raise ValidationError.from_exception_data("host", found)
    return host


# ---------------------------------------------------------------- what pydantic cannot check


def read_hosts(read: Mapping[str, model.Host] | None, context: Context) -> tuple[model.Host, ...]:
    """Return all hosts, one for each named node of a cluster; without `hosts:`, this machine without containers."""
    if read is None:
        where = model.Where(file=context.file, line=1, key="hosts")
        return (model.Host(name=DEFAULT_NAME, engine="process", where=where),)
    hosts: list[model.Host] = []
    for name, given in read.items():
        is_one = given.parallel == 1 and given.parallel is not True
        host = replace(given, parallel=False) if is_one else given
        _check(given, ("hosts", name), context)
        hosts += _meant(host)
    return tuple(hosts)


def names_of(read: Mapping[str, model.Host] | None) -> dict[str, tuple[str, ...]]:
    """Return the hosts that each name stands for: one for each named node of a cluster, else the host itself."""
    if read is None:
        return {DEFAULT_NAME: (DEFAULT_NAME,)}
    groups = {name: tuple(host.name for host in _meant(entry)) for name, entry in read.items()}
    return {**{host: (host,) for group in groups.values() for host in group}, **groups}


def _meant(entry: model.Host) -> Sequence[model.Host]:
    """Return the hosts that an entry stands for."""
    return (entry,) if entry.settings is None else tuple(entry.settings.hosts(entry))


def _check(host: model.Host, key: KeyPath, context: Context) -> None:
    """Add the problems of a host to the context."""
    names = [model.machine_name(engine) for engine in host.pool]
    for number, engine in enumerate(host.pool):
        first = names.index(names[number])
        if why := model.engine_kind(engine).not_in_pool:
            context.add((*key, "engine", number), why)
        elif first < number:
            context.add((*key, "engine", number), f"{shown(engine)} is the same machine as engine[{first}]; keep one")
    gpus = () if isinstance(host.gpus, str) else host.gpus
    if len(set(gpus)) < len(gpus):
        context.add((*key, "gpus"), "a GPU is listed twice; keep one")
    is_pool = any(each.pool for each in _meant(host))
    for number, gpu in enumerate(gpus):
        if is_pool and gpu.startswith(("GPU-", "MIG-")):
            text = f"{shown(gpu)} is in one machine, but this host is a pool; name the GPU by its index or its name"
            context.add((*key, "gpus", number), text)
    if host.pool and host.parallel not in ("auto", False):
        text = "the machines of a pool run at the same time, and the cards of each run one after the other; remove it"
        context.add((*key, "parallel"), text)
    for place, text in host.settings.problems(host) if host.settings else ():
        context.add((*key, *place), text)
