"""Defines the types of the keys in matrix.yaml: each parses a YAML value and describes itself in the JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    WithJsonSchema,
)

from harness import model
from harness.matrix import values


class Shape(BaseModel):
    """A mapping with known keys only."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _json(kind: str | list[str], **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
VARIABLE = r"^[^=\s\x00]{1,256}$"

Text = Annotated[str, BeforeValidator(values.plain_text), _json(["string", "number"])]
Anything = Annotated[str, BeforeValidator(values.anything), _json(["string", "number"])]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Variable = Annotated[str, StringConstraints(pattern=VARIABLE)]
VersionName = Annotated[str, BeforeValidator(values.plain_text), StringConstraints(max_length=200)]
Whole = Annotated[int, BeforeValidator(values.whole_number), _json("integer")]
Parallel = Annotated[
    bool | int | Literal["auto"],
    BeforeValidator(values.parallel, json_schema_input_type=bool | Annotated[int, Field(ge=1)] | Literal["auto"]),
]
Truth = Annotated[bool, BeforeValidator(values.truth), _json("boolean")]
Size = Annotated[int, BeforeValidator(values.whole_bytes), _json("string", examples=["8GiB", "512MB"])]
LeakLimit = Annotated[float, BeforeValidator(values.leak_kib), _json("string", examples=["0.5KiB", "80B"])]
Share = Annotated[float, BeforeValidator(values.fraction), _json(["string", "number"], examples=["10%", 0.1])]
ShareOrNone = Annotated[
    float | None,
    BeforeValidator(values.or_none(values.fraction)),
    _json(["string", "number"], examples=["10%", 0.1, "none"]),
]
LeakOrNone = Annotated[
    float | None, BeforeValidator(values.or_none(values.leak_kib)), _json("string", examples=["0.5KiB", "none"])
]
CountOrNone = Annotated[
    float | None,
    BeforeValidator(values.or_none(values.amount_per_step)),
    _json(["string", "number"], examples=[0.01, "none"]),
]
Duration = Annotated[float, BeforeValidator(values.seconds), _json(["string", "number"], examples=["20m", "1h30m", 90])]
ScalarValue = Annotated[
    model.Scalar, BeforeValidator(values.scalar), _json(["string", "number", "boolean", "null"])
]  # fmt: skip


def _form(value: Any) -> str:
    """Return the form of a key's value. The <> distinguish it from the keys in the path of an error."""
    if isinstance(value, dict):
        return "<mapping>"
    return "<list>" if isinstance(value, list) else "<text>"


BY_FORM = Discriminator(_form)


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _environment(value: Any) -> Any:
    """Accept Compose's two forms: a mapping, or a list of NAME=value."""
    if not isinstance(value, list):
        return value
    result: dict[str, str] = {}
    for item in value:
        name, equals, content = item.partition("=") if isinstance(item, str) else ("", "", "")
        if not equals:
            raise ValueError(
                f"{values.kind(item)} is not NAME=value; write NAME=value, or NAME=${{NAME}} to pass it on"
            )
        if name in result:
            raise ValueError(f"{name} appears twice; keep one")
        result[name] = content
    return result


def _gpus(value: Any) -> Any:
    if isinstance(value, list) or value in ("none", "all", "each"):
        return value
    raise ValueError(f'{values.kind(value)} is not allowed; allowed: none, all, each, or a list such as ["RTX 3090"]')


Environment = Annotated[
    dict[Variable, Anything], BeforeValidator(_environment, json_schema_input_type=dict[Variable, Anything] | list[str])
]
Images = Annotated[
    Annotated[list[Text], Field(min_length=1), Tag("<list>")]
    | Annotated[dict[VersionName, Text], Field(min_length=1), Tag("<mapping>")],
    BY_FORM,
]
Versions = Annotated[
    Annotated[list[Text], Field(min_length=1), Tag("<list>")] | Annotated[Text, Tag("<text>")], BY_FORM
]
Engines = Annotated[Annotated[Text, Tag("<text>")] | Annotated[list[Text], Field(min_length=1), Tag("<list>")], BY_FORM]
Gpus = Annotated[
    Annotated[Literal["none", "all", "each"], Tag("<text>")]
    | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
    BY_FORM,
    BeforeValidator(_gpus, json_schema_input_type=Literal["none", "all", "each"] | list[Text]),
]
ParamValues = Annotated[
    list[ScalarValue],
    Field(min_length=1),
    BeforeValidator(_as_list, json_schema_input_type=ScalarValue | list[ScalarValue]),
]
Arguments = Annotated[list[Anything], Field(min_length=1)]
Capability = Annotated[str, BeforeValidator(values.capability), _json("string", examples=["SYS_PTRACE"])]
NameList = Annotated[list[Text], Field(min_length=1)]
