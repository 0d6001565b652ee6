"""Defines the shape of matrix.yaml: its keys and their types. The JSON Schema is generated from it. Says in plain words
where a file has another shape.

Every attribute's docstring is the key's description in the schema. Hosts, scenarios and limits are the records of
`model`; a series is a list of versions in one of six forms. Checks across several places (names that must exist,
scripts, versions) come later, in the modules `read_…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationError,
    field_validator,
)
from pydantic_core import ErrorDetails

from harness import model
from harness.errors import did_you_mean
from harness.matrix.context import Context, KeyPath, listed
from harness.matrix.read_hosts import AnyHost, settings_schemas
from harness.model.file_keys import Shape
from harness.model.forms import (
    BY_FORM,
    Anything,
    Environment,
    Given,
    Name,
    ScalarValue,
    Text,
    Truth,
    Variable,
    fits,
    kind,
    plain_text,
    shown,
    whole_number,
)
from harness.registry.image_references import VERSION_KEY, is_bound

NameList = Annotated[list[Text], Field(min_length=1)]
VersionName = Annotated[str, BeforeValidator(plain_text), StringConstraints(max_length=200)]
Reference = Annotated[
    Text,
    fits(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,400}", "is not an image; write repository:tag or repository@sha256:…"),
]
Images = Annotated[
    Annotated[list[Reference], Field(min_length=1), Tag("<list>")]
    | Annotated[dict[VersionName, Reference], Field(min_length=1), Tag("<mapping>")],
    BY_FORM,
]
Versions = Annotated[
    Annotated[list[Text], Field(min_length=1), Tag("<list>")] | Annotated[Text, Tag("<text>")], BY_FORM
]
# ---------------------------------------------------------------- series: one class for each way to name images


class SeriesEntry(Shape):
    environment: Environment = ()
    """Environment variables of these images, as a mapping or a list of NAME=value; {version} is replaced by the
    version."""
    entrypoint: Truth = True
    """false: start without the image's own entrypoint."""


def _bound(text: str) -> str:
    if not is_bound(text):
        raise ValueError(f"{shown(text)} is not a version; write one such as 20.12 or 2.1.0rc1, not the whole tag")
    return text


Bound = Annotated[Text, AfterValidator(_bound)]


class TagRange(Shape):
    """The tags that the registry has when the file is read, sorted by the version in them."""

    match: Text
    """Pattern of the tags, with {version} or a wildcard (* ? [) where the version begins: "{version}-py3", "*-py3"."""
    from_: Annotated[Bound | None, Field(alias="from")] = None
    """The oldest version, inclusive: "20.12"."""
    to: Bound | None = None
    """The newest version, including all that begin with it: "23.03"."""


TagName = Annotated[
    Text,
    fits(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|sha256:[0-9a-f]{64}", "is not a tag; letters, digits, _ . and - are allowed"
    ),
]
Tags = Annotated[
    Annotated[list[TagName], Field(min_length=1), Tag("<list>")] | Annotated[TagRange, Tag("<mapping>")], BY_FORM
]


class Repository(SeriesEntry):
    """Tags of one repository of a registry, oldest first."""

    repository: Annotated[
        Text,
        fits(
            r"[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[a-z0-9._-]+)*",
            "is not a repository; write it without a tag, such as nvcr.io/nvidia/tensorflow",
        ),
    ]
    """The repository, without a tag: nvcr.io/nvidia/tensorflow."""
    tags: Tags
    """The tags (or sha256 digests), oldest first; or a range of the registry's tags."""


class Listed(SeriesEntry):
    """Any images, listed oldest first."""

    images: Images
    """References, oldest first: a list, or a mapping from a version's name to its reference."""


class Built(SeriesEntry):
    """One Dockerfile, built once per version."""

    build: Text
    """The folder of the Dockerfile, relative to the matrix file."""
    arg: Variable
    """The build arg that takes the version."""
    versions: NameList
    """The versions, oldest first."""
    args: dict[Variable, Anything] = {}
    """Other build args, the same for all versions."""


class OverBase(SeriesEntry):
    """A series of environments on top of one base image, or of virtual environments on a process host."""

    python: (
        Annotated[Text, fits(r"3\.[0-9]{1,2}(?:\.[0-9]{1,2})?", "is not a version of Python 3, such as 3.11")] | None
    ) = None
    """The interpreter's version, such as "3.11"; default: the one that runs the harness."""
    base: Text | None = None
    """The image to install on top of; default: HARNESS_BASE if it is set, else python:{python}-slim-bookworm."""


def _requirement(text: str) -> str:
    try:
        Requirement(text.replace(VERSION_KEY, "1.0"))
    except InvalidRequirement as error:
        problem = f"{shown(text)} is not a requirement; write one such as numpy=={VERSION_KEY} or numpy==1.26.4"
        raise ValueError(problem) from error
    return text


class Installed(OverBase):
    """Python packages installed on top of one base image, or in a virtual environment on a process host."""

    install: Annotated[list[Annotated[Text, AfterValidator(_requirement)]], Field(min_length=1)]
    """Requirements to install, at least one with {version}: ["pandas=={version}", "numpy==1.26.4"]."""
    versions: Versions
    """The versions, oldest first, or a range of the package index: ">=2.0,<2.3"."""

    @field_validator("install")
    @classmethod
    def _varies(cls, install: list[str]) -> list[str]:
        if not any(VERSION_KEY in item for item in install):
            raise ValueError(
                f"no requirement has {VERSION_KEY}: all versions would be the same; "
                f"write one such as numpy=={VERSION_KEY}"
            )
        return install


class Locks(OverBase):
    """Requirement or lock files, each with everything that one version installs."""

    locks: dict[VersionName, Text] = Field(min_length=1)
    """The files, oldest first: a mapping from a version's name to its file, relative to the matrix file."""


class Varies(SeriesEntry):
    """One environment variable of any command, which runs on the machine as it is."""

    vary: Annotated[
        Text,
        fits(
            r"[A-Za-z_][A-Za-z0-9_]{0,255}",
            "cannot name an environment variable; use letters, digits and _, and do not begin with a digit",
        ),
    ]
    """The variable that takes the version: IMAGE, or TORCH_COMPILE. {version} in the words of the command does, too."""
    versions: NameList
    """Its values, in the order in which they are compared."""


SERIES_KINDS: dict[str, type[SeriesEntry]] = {
    "repository": Repository, "images": Listed, "build": Built, "install": Installed,
    "locks": Locks, "vary": Varies,
}  # fmt: skip


def _series_kind(value: Any) -> str | None:
    kinds = [kind for kind in SERIES_KINDS if isinstance(value, dict) and kind in value]
    return f"<{kinds[0]}>" if len(kinds) == 1 else None


AnySeries = Annotated[
    Annotated[Repository, Tag("<repository>")]
    | Annotated[Listed, Tag("<images>")]
    | Annotated[Built, Tag("<build>")]
    | Annotated[Installed, Tag("<install>")]
    | Annotated[Locks, Tag("<locks>")]
    | Annotated[Varies, Tag("<vary>")],
    Discriminator(
        _series_kind, custom_error_type="series_kind", custom_error_message=f"exactly one of {', '.join(SERIES_KINDS)}"
    ),
]


# ---------------------------------------------------------------- the file


class MatrixFile(Shape):
    """A matrix file: the images, the hosts, the scenarios, and the limits by which they are judged."""

    version: Annotated[Literal[1], BeforeValidator(whole_number, json_schema_input_type=Literal[1])]
    """The version of this format, always 1."""
    name: Text | None = None
    """The name of the matrix; default: the file's name without its extension."""
    series: Annotated[dict[Name, AnySeries], Field(min_length=1)]
    """The histories: each is a list of versions, oldest first."""
    hosts: Annotated[dict[Name, AnyHost], Field(min_length=1)] | None = None
    """The machines; default: `local`, which is this machine without containers."""
    scenarios: Annotated[dict[Name, model.Scenario], Field(min_length=1)]
    """The scenarios to run on each version."""
    include: list[dict[str, ScalarValue]] = []
    """Additional variants: a scenario and its params, one mapping per variant."""
    exclude: list[dict[str, ScalarValue]] = []
    """Cells to leave out: any of series, image, host, scenario and params, with an optional why."""
    baseline: dict[str, Text] = {}
    """For each series, the version that all others are compared with; default: the preceding version."""
    trials: model.Trials = model.Trials()
    """Number of launches per cell."""
    stop: model.Stop = model.Stop()
    """When to end early; default: when every row is done."""


# ---------------------------------------------------------------- the JSON Schema


DIALECT = "https://json-schema.org/draft/2020-12/schema"


@cache
def schema() -> dict[str, Any]:
    """Return the schema of matrix.yaml as plain data."""
    generated = MatrixFile.model_json_schema()
    for settings in settings_schemas():
        generated["$defs"]["Host"]["properties"] |= settings["properties"]
    return {"$schema": DIALECT, **_tidy(generated), "title": "matrix.yaml"}


def _tidy(value: Any) -> Any:
    """Remove what does not apply to the file, but only to the records: nulls, and defaults in the records' units."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "\n\n" in (description := value.get("description", "")) and isinstance(description, str):
        value = {**value, "description": description.partition("\n\n")[0]}  # the rest is about the record
    unwritten = (type(None), dict, list)  # no user would write null or a whole record as a default
    kept = {key: _tidy(item) for key, item in value.items() if key != "default" or not isinstance(item, unwritten)}
    choices = [choice for choice in kept.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        kept = {**choices[0], **{key: item for key, item in kept.items() if key != "anyOf"}}
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    return kept


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
