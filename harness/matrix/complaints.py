"""Turns pydantic's errors into problems in plain words, each at its key path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from harness.errors import did_you_mean
from harness.matrix.problems import Context, KeyPath, listed, shown
from harness.matrix.shape import SERIES_KINDS, MatrixFile
from harness.matrix.values import kind

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

NOT_YET = {"nodes_per_trial": "a launch runs on one node: remove the key, and start all ranks there with `launcher`"}
"""The messages for keys that would need what the harness cannot do."""


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
    elif code == "extra_forbidden" and last in NOT_YET:
        return NOT_YET[last]
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
