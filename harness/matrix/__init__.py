"""Reads matrix.yaml into a Matrix: what to run, where, and with which limits. Every error names file, line and key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness import masking, model
from harness.errors import did_you_mean
from harness.matrix.problems import Context, KeyPath, listed
from harness.matrix.read_hosts import names_of, read_hosts
from harness.matrix.read_scenarios import read_exclude, read_include, read_scenarios
from harness.matrix.read_series import SeriesReader
from harness.matrix.read_yaml import read_yaml
from harness.matrix.servers import check_ports
from harness.matrix.shape import SERIES_KINDS, MatrixFile, schema
from harness.model.forms import LETTERS, Given, kind, shown
from harness.package_index import PackageIndex
from harness.registry.registry_client import Registry, Tags


def load_matrix(
    path: Path, *, environ: Mapping[str, str], index: PackageIndex | None = None, tags: Tags | None = None
) -> model.Matrix:
    """Read and check a matrix file, the scripts and folders it names, and its versions.

    `environ` fills in ${VARIABLES} and names the package index and Docker's logins, unless `index` and `tags` are
    given. Raises MatrixError with one line per problem, in order of line, and RegistryTrouble if a registry does not
    answer a query for tags.
    """
    file, context = _open(path, environ)
    reader = SeriesReader(
        context=context,
        index=index or PackageIndex.from_environ(environ),
        tags=tags or Registry.from_environ(environ).tags,
    )
    series, hosts = reader.read(file), read_hosts(file.hosts, context)
    scenarios, scripts = read_scenarios(file, context, hosts=names_of(file.hosts), environ=environ)
    check_ports(scenarios, hosts, context)
    matrix = model.Matrix(
        name=_name(file, context),
        path=Path(context.file),
        series=series,
        hosts=hosts,
        scenarios=scenarios,
        include=read_include(file, scenarios, scripts, context),
        exclude=read_exclude(file, series, hosts, scenarios, context),
        trials=file.trials,
        stop=file.stop,
    )
    _learn(matrix)
    context.raise_if_any()
    return matrix


def _learn(matrix: model.Matrix) -> None:
    """Note the credentials in a matrix file, so that no file and no output contains them."""
    for scenario in matrix.scenarios:
        for words in (scenario.args, scenario.launcher, scenario.command, scenario.serve, scenario.generator):
            masking.learn_words(words)
        masking.learn_variables(scenario.environment)
        masking.learn(value for _, value in scenario.secrets)
    for image in (image for series in matrix.series for image in series.images):
        masking.learn_variables(image.environment)
        if isinstance(image.source, model.Build):
            masking.learn_variables(image.source.args)
        elif isinstance(image.source, model.Install):
            masking.learn_words(image.source.packages)
    masking.learn_words(str(host.engine) for host in matrix.hosts)


def load_hosts(path: Path, *, environ: Mapping[str, str]) -> tuple[str, tuple[model.Host, ...]]:
    """Return a matrix's name and hosts only, without querying an index or a registry. Raises MatrixError."""
    file, context = _open(path, environ)
    hosts = read_hosts(file.hosts, context)
    context.raise_if_any()
    return _name(file, context), hosts


def _open(path: Path, environ: Mapping[str, str]) -> tuple[MatrixFile, Context]:
    context = read_yaml(path, environ=environ)
    return check_shape(context), context


def _name(file: MatrixFile, context: Context) -> str:
    """Return the matrix's name, changed so that it is valid for a folder on every system."""
    name = file.name or Path(context.file).stem
    return re.sub(rf"[^{LETTERS}._-]+", "-", name)[:64].strip(".-") or "matrix"


# ---------------------------------------------------------------- pydantic's errors as problems in plain words


MARK = re.compile(r"\[key\]|<.*>", re.DOTALL)
FORMS = ("<mapping>", "<list>", "<text>")
WORDS = {
    "string_type": "must be text, not {got}",
    "dataclass_type": "must be a mapping, not {got}; its keys: {keys}",
    "dict_type": "must be a mapping, not {got}",
    "model_type": "must be a mapping, not {got}; its keys: {keys}",
    "model_attributes_type": "must be a mapping, not {got}; its keys: {keys}",
    "list_type": "must be a list, not {got}",
    "tuple_type": "must be a list, not {got}",
    "literal_error": "{got} is not allowed; allowed: {expected}",
    "too_short": "is empty; give at least one",
    "greater_than_equal": "{got} is too small; it must be at least {ge}",
    "less_than_equal": "{got} is too large; it must be at most {le}",
    "less_than": "{got} is too large; it must be less than {lt}",
    "value_error": "{error}",
    "missing": "is missing: {what}",
    "of_another_engine": "{text}",
    "extra_forbidden": "unknown key{hint} allowed: {keys}",
    "unexpected_keyword_argument": "unknown key{hint} allowed: {keys}",
    "union_tag_invalid": "must be {forms}, not {got}",
    "string_pattern_mismatch": "{shown} is not an allowed name; use letters and digits, and _ . - inside it",
    "series_kind": "does not say what its images are{hint} give {message}",
}


def check_shape(context: Context) -> MatrixFile:
    """Return a file's data as a MatrixFile. Raises MatrixError with everything that is wrong with its shape."""
    data = {} if context.data is None else context.data
    for section in ("hosts", "scenarios"):
        named = data.get(section) if isinstance(data, dict) else None
        for name, entry in named.items() if isinstance(named, dict) else ():
            if isinstance(entry, dict):
                given = {"name": Given(name), "where": Given(context.where(section, name))}
                data[section] = {**data[section], name: {**given, **entry}}
    empty = list(_empty(data, ()))
    for path in empty:
        context.add(path, "has no value; give it one, or remove the key")
    try:
        file = MatrixFile.model_validate(data, context=context.folder)
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
    elif code in ("extra_forbidden", "unexpected_keyword_argument"):
        values["hint"], values["keys"] = did_you_mean(last, known=beside), listed(beside, most=30)
    elif code == "union_tag_invalid":  # "'<list>', '<text>'" are forms of a value
        forms = [form.strip(" '<>") for form in values["expected_tags"].split(",")]
        values["forms"] = " or ".join(form if form == "text" else f"a {form}" for form in forms)
    elif code == "series_kind":
        values["hint"] = did_you_mean(*(got if isinstance(got, dict) else ()), known=SERIES_KINDS)
    elif code.startswith(("model_", "dataclass_")):
        values["keys"] = listed(_fields(detail["loc"]), most=30)
    return WORDS.get(code, "{message}, not {got}").format(**values)


def _fields(path: tuple[int | str, ...]) -> dict[str, str]:
    """Return the keys that are allowed at one of pydantic's paths, with their descriptions, as the schema has them."""
    places: list[Any] = [schema()]
    for step in path:
        places = [inside for place in places for inside in _inside(place, str(step))]
    keys = {key: value for place in places for key, value in place.get("properties", {}).items()}
    return {key: _described(value) for key, value in keys.items()}


def _described(place: Any) -> str:
    return place.get("description") or next(
        (str(one["description"]) for one in _meant(place) if "description" in one), ""
    )


def _meant(place: Any) -> Iterator[Any]:
    """Yield the schemas that a schema may stand for, with the records that it refers to."""
    if "$ref" in place:
        place = schema()["$defs"][place["$ref"].rpartition("/")[2]]
    choices = [*place.get("anyOf", ()), *place.get("oneOf", ())]
    yield from (inner for choice in choices for inner in _meant(choice))
    if not choices:
        yield place


def _inside(place: Any, step: str) -> Iterator[Any]:
    """Yield the schemas one step below a schema. A step such as `<build>` leads to the choice that has this key."""
    for one in _meant(place):
        keys = one.get("properties", {})
        if MARK.fullmatch(step):
            if step in FORMS or step.strip("<>") in keys:
                yield one
        elif step in keys:
            yield from _meant(keys[step])
        else:
            others = (one.get("items"), *one.get("patternProperties", {}).values(), one.get("additionalProperties"))
            yield from (inner for other in others if isinstance(other, dict) for inner in _meant(other))
