"""Defines the forms in which a matrix file writes values: sizes, durations, shares, addresses.

Records that read a matrix file have fields of these types. When pydantic reads a matrix file, the context is the file's
folder; without a context, it reads what the harness wrote, in the form that the program uses. Each parser raises
ValueError with the problem and the remedy.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticKnownError, PydanticOmit, core_schema

from harness import masking
from harness.model.from_file import Scalar

Json = dict[str, Any]
TEXT: Json = {"type": ["string", "number"]}


def shown(value: object) -> str:
    """Return a value as messages show it, shortened to 60 characters."""
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---------------------------------------------------------------- how a field is read


def written_as(schema: Json, read: Callable[[Any], Any]) -> BeforeValidator:
    """Return the mark of a type whose values a matrix file writes in another form: `schema` describes it, and `read`
    parses it."""

    def parsed(value: Any, info: ValidationInfo) -> Any:
        return value if info.context is None else read(value)

    return BeforeValidator(parsed, json_schema_input_type=Annotated[Any, WithJsonSchema(schema)])


@dataclass(frozen=True, kw_only=True, eq=False)
class InFile:
    """Marks a field that a matrix file writes as another type, `form`, which `then` turns into the field's own."""

    form: Any
    then: Callable[[Any], Any] = lambda read: read

    @cached_property
    def reader(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.form)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any, own: Callable[[Any], Any], info: ValidationInfo) -> Any:
            if info.context is None:
                return own(value)
            return self.then(self.reader.validate_python(value, context=info.context))

        return core_schema.with_info_wrap_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return inlined(self.reader)


def described(record: type[Any], core: Any, handler: GetJsonSchemaHandler) -> Json:
    """Return the JSON Schema of a record, with the docstrings of its attributes as descriptions."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    told = {
        attribute.target.id: text.value.value
        for attribute, text in pairwise(cast("ast.ClassDef", body).body)
        if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    schema = handler(core)
    properties = handler.resolve_ref_schema(schema)["properties"]
    for field in core["schema"]["fields"]:
        key = field.get("validation_alias", field["name"])
        if key in properties and field["name"] in told:
            properties[key]["description"] = inspect.cleandoc(str(told[field["name"]]))
    return schema


def inlined(reader: TypeAdapter[Any]) -> Json:
    """Return the JSON Schema of a type without definitions: each record is described where it is used."""
    schema = reader.json_schema()
    definitions = schema.pop("$defs", {})

    def resolved(value: Any) -> Any:
        if isinstance(value, list):
            return [resolved(one) for one in value]
        if not isinstance(value, dict):
            return value
        record = definitions[value["$ref"].rpartition("/")[2]] if "$ref" in value else {}
        return {name: resolved(one) for name, one in {**record, **value}.items() if name != "$ref"}

    return cast("Json", resolved(schema))


def key(name: str, *, default: str | None = None) -> Any:
    """Return the mark of a field that files name `name`, and whose default a matrix file would write as `default`."""
    return Field(alias=name, json_schema_extra=None if default is None else {"default": default})


UNTOLD = Field(exclude=True)
"""Marks a field that is in no file of a run."""


MASKED = PlainSerializer(masking.told)
"""Marks variables or build arguments, of which files have no credentials."""
WITHOUT_CREDENTIALS = PlainSerializer(masking.without_credentials)
MASKED_WORDS = PlainSerializer(lambda each: masking.told_words(each) if isinstance(each, tuple) else each)
"""Marks the words of a command, of which files have no credentials. A path in their place is kept."""


LOCATED = BeforeValidator(
    lambda value, info: value if info.context is None else info.context / plain_text(value),
    json_schema_input_type=Annotated[Any, WithJsonSchema(TEXT)],
)
"""Marks a path that is relative to the matrix file's folder, which is the context of the reading."""


class Pairs:
    """Marks a tuple of pairs that is written as a mapping."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        pair: Any = get_args(get_args(source)[0])
        mapping = handler.generate_schema(dict.__class_getitem__(pair))
        return core_schema.no_info_after_validator_function(
            lambda read: tuple(read.items()),
            mapping,
            serialization=core_schema.plain_serializer_function_ser_schema(dict, return_schema=mapping),
        )


@dataclass(frozen=True)
class Given:
    """A value that the reader of a matrix file fills in."""

    value: Any


def by_id(record: Any) -> CoreSchema:
    """Return the schema of a record that files name by its id. The context of the reading maps each class of such
    records to the records that there are, by their ids."""

    def found(value: Any, info: ValidationInfo) -> Any:
        try:
            return value if isinstance(value, record) else cast("Any", info.context)[record][value]
        except (LookupError, TypeError):
            raise ValueError(f"the plan has no {record.__name__.lower()} {shown(value)}") from None

    return core_schema.with_info_plain_validator_function(
        found, serialization=core_schema.plain_serializer_function_ser_schema(lambda one: one.id)
    )


class NotInFile:
    """Marks a field that no matrix file may contain: the program sets it, while it reads the file or later."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any, info: ValidationInfo) -> Any:
            if info.context is not None and not isinstance(value, Given):
                raise PydanticKnownError("unexpected_keyword_argument")
            return value.value if isinstance(value, Given) else value

        return core_schema.with_info_before_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        raise PydanticOmit


@dataclass(frozen=True, kw_only=True)
class Within:
    """Marks a number or list that has bounds in a matrix file: `least` and `most`, or at least `items` items."""

    least: float | None = None
    most: float | None = None
    items: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: Any, info: ValidationInfo) -> Any:
            if info.context is None:
                return value
            if self.items and len(value) < self.items:
                lengths = {"field_type": "List", "min_length": self.items, "actual_length": len(value)}
                raise PydanticKnownError("too_short", lengths)
            if self.least is not None and value < self.least:
                raise PydanticKnownError("greater_than_equal", {"ge": self.least})
            if self.most is not None and value > self.most:
                raise PydanticKnownError("less_than_equal", {"le": self.most})
            return value

        return core_schema.with_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        names = {"minimum": self.least, "maximum": self.most, "minItems": self.items or None}
        return {**handler(core), **{name: bound for name, bound in names.items() if bound is not None}}


# ---------------------------------------------------------------- values


UNITS = {
    "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
    "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip
MOST_BYTES = 1 << 60
MOST_SECONDS = 30 * 24 * 3600
MOST_A_STEP = 1e6

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_DURATION = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<ms>[0-9]+(?:\.[0-9]+)?)ms"
    r"|(?:(?P<h>[0-9]+)h)?(?:(?P<m>[0-9]+)m)?(?:(?P<s>[0-9]+(?:\.[0-9]+)?)s)?"
)


class IntAsWritten(int):
    """A whole number that keeps its written form: 010 and 0x10 stay as the file has them."""

    written: str

    def __new__(cls, text: str) -> IntAsWritten:
        base = {"0x": 16, "0o": 8}.get(text[:2], 10)
        number = super().__new__(cls, text, base)
        number.written = text
        return number


class FloatAsWritten(float):
    """A number that keeps its written form: the version 1.10 is not 1.1."""

    written: str

    def __new__(cls, text: str) -> FloatAsWritten:
        number = super().__new__(cls, text)
        number.written = text
        return number


def kind(value: object) -> str:
    """Return a description of a value for a message: `a list`, `'x'`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return shown(value)


def plain_text(value: Any) -> str:
    """Return text, or a number as written in the file. It must not be empty."""
    result = getattr(value, "written", value)
    if not isinstance(result, str):
        hint = "; put it in quotes" if isinstance(value, bool) else ""
        raise ValueError(f"must be text, not {kind(value)}{hint}")
    if not result.strip():
        raise ValueError("is empty; write some text")
    if "\n" in result or "\t" in result:
        raise ValueError("has more than one line, or a tab; write one line")
    return result


def anything(value: Any) -> str:
    """Return any text, even if it is empty or has several lines: an environment variable, a command's argument."""
    return value if isinstance(value, str) else plain_text(value)


def whole_number(value: Any) -> int:
    """Return a whole number. Quoted numbers are accepted too, since variables give text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]{1,18}", value):
        return int(value)
    raise ValueError(f"must be a whole number, not {kind(value)}")


def truth(value: Any) -> bool:
    """Return true or false. Quoted words are accepted too, since variables give text."""
    if isinstance(value, bool) or value in ("true", "false"):
        return value is True or value == "true"
    raise ValueError(f"must be true or false, not {kind(value)}")


def parallel(value: Any) -> bool | int | str:
    """Return `auto`, true, false or a number of launches. Quoted words are accepted too, since variables give text."""
    if isinstance(value, str) and value == "auto":
        return value
    for read in (truth, whole_number):
        with contextlib.suppress(ValueError):
            result: bool | int = read(value)
            if result is False or result >= 1:
                return result
    raise ValueError(f"must be auto, true, false or a number of launches, not {kind(value)}")


def exact_size(value: Any) -> Decimal:
    """Return the bytes of a size such as `0.5KiB`, exactly. A unit is required: a bare 8 could be bytes or GiB."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if not match or match[2] not in UNITS:
        raise ValueError(f"{kind(value)} is not a size; write one such as 8GiB; units: {', '.join(UNITS)}")
    result = Decimal(match[1]) * UNITS[match[2]]
    if result > MOST_BYTES:
        raise ValueError(f"{kind(value)} is too large a size")
    return result


def whole_bytes(value: Any) -> int:
    """Return a size of memory or disk in whole bytes, at least one."""
    result = int(exact_size(value))
    if result < 1:
        raise ValueError(f"{kind(value)} is less than one byte")
    return result


def leak_kib(value: Any) -> float:
    """Return a size per step in KiB; it must be positive."""
    if not (isinstance(value, str) and _SIZE.fullmatch(value)):
        raise ValueError(f"{kind(value)} is not a size per step; write one such as 0.5KiB")
    result = exact_size(value)
    if result <= 0:
        raise ValueError("0 would make every trace a leak; write a size such as 0.5KiB")
    return float(result / 1024)


def _written(value: Any) -> str:
    """Return a number or text as written in the file; "" for true and false."""
    return "" if isinstance(value, bool) else str(getattr(value, "written", value))


def seconds(value: Any) -> float:
    """Return the seconds of `1h30m`, `20m`, `90s`, `500ms`, or a number of seconds."""
    match = _DURATION.fullmatch(written) if (written := _written(value)) else None
    if not match:
        raise ValueError(f"{kind(value)} is not a duration; write 20m, 90s, 1h30m, or a number of seconds")
    parts = {unit: Decimal(number or 0) for unit, number in match.groupdict().items()}
    result = parts["h"] * 3600 + parts["m"] * 60 + parts["s"] + parts["number"] + parts["ms"] / 1000
    if not 0 < result <= MOST_SECONDS:
        raise ValueError(f"{kind(value)} is out of range; it must be more than 0 and at most 30 days (720h)")
    return float(result)


def fraction(value: Any) -> float:
    """Return 0.1 for `10%` or 0.1. A number above 1 without a % is refused: 10 would mean 1000 %."""
    written = _written(value)
    percent = written.endswith("%")
    number = written.removesuffix("%").rstrip()
    if not _NUMBER.fullmatch(number):
        raise ValueError(f"{kind(value)} is not a share; write 10% or 0.1")
    result = Decimal(number) / (100 if percent else 1)
    if result > 1 and not percent:
        raise ValueError(f"{number} would be {result * 100} %; write {number}% or a number up to 1")
    if not 0 < result <= 1000:
        raise ValueError(f"{kind(value)} is out of range; it must be more than 0%")
    return float(result)


def or_none(parse: Callable[[Any], float]) -> Callable[[Any], float | None]:
    """Return a parser that also accepts the word none, for which it returns None."""
    return lambda value: None if value == "none" else parse(value)


def amount_per_step(value: Any) -> float:
    """Return a positive amount per step, such as 0.01. Its key also accepts the word none."""
    written = _written(value)
    if not _NUMBER.fullmatch(written):
        raise ValueError(f"{kind(value)} is not an amount per step; write a number such as 0.01, or none")
    if not 0 < float(written) <= MOST_A_STEP:
        raise ValueError(f"{kind(value)} is out of range; it must be more than 0 and at most {MOST_A_STEP:g} per step")
    return float(written)


def scalar(value: Any) -> str | int | float | bool | None:
    """Return the value of a parameter: text, number, true, false or null, without its written form."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if not isinstance(value, float):
        raise ValueError(f"must be text, a number, true, false or null, not {kind(value)}")
    if math.isinf(value):
        raise ValueError(f"{getattr(value, 'written', value)} is too large a number")
    return float(value)


def environment(value: Any) -> Any:
    """Accept Compose's two forms: a mapping, or a list of NAME=value."""
    if not isinstance(value, list):
        return value
    result: dict[str, str] = {}
    for item in value:
        name, equals, content = item.partition("=") if isinstance(item, str) else ("", "", "")
        if not equals:
            raise ValueError(f"{kind(item)} is not NAME=value; write NAME=value, or NAME=${{NAME}} to pass it on")
        if name in result:
            raise ValueError(f"{name} appears twice; keep one")
        result[name] = content
    return result


# ---------------------------------------------------------------- types of fields


LETTERS = "A-Za-z0-9\u00c0-\u1fff\u3040-\ud7a3"
"""Letters and digits of names, of any living script, as a regular expression of Python and of JSON Schema has them."""
NAME = rf"^[{LETTERS}][{LETTERS}_.-]{{0,63}}$"
VARIABLE = r"^[^=\s\x00]{1,256}$"
SHARE: Json = {"type": ["string", "number"], "examples": ["10%", 0.1]}

Text = Annotated[str, written_as(TEXT, plain_text)]
Anything = Annotated[str, written_as(TEXT, anything)]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Variable = Annotated[str, StringConstraints(pattern=VARIABLE)]
Whole = Annotated[int, written_as({"type": "integer"}, whole_number)]
Parallel = Annotated[
    bool | int | Literal["auto"],
    BeforeValidator(parallel, json_schema_input_type=bool | Annotated[int, Field(ge=1)] | Literal["auto"]),
]
Truth = Annotated[bool, written_as({"type": "boolean"}, truth)]
Size = Annotated[int, written_as({"type": "string", "examples": ["8GiB", "512MB"]}, whole_bytes)]
Share = Annotated[float, written_as(SHARE, fraction)]
Duration = Annotated[float, written_as({"type": ["string", "number"], "examples": ["20m", "1h30m", 90]}, seconds)]
ScalarValue = Annotated[Scalar, written_as({"type": ["string", "number", "boolean", "null"]}, scalar)]
Environment = Annotated[
    tuple[tuple[Variable, Anything], ...],
    Pairs(),
    MASKED,
    BeforeValidator(environment, json_schema_input_type=dict[Variable, Anything] | list[str]),
]
BY_FORM = Discriminator(
    lambda value: "<mapping>" if isinstance(value, dict) else "<list>" if isinstance(value, list) else "<text>"
)
"""The form of a key's value. The <> distinguish it from the keys in the path of an error."""
Names = Annotated[tuple[Text, ...], Within(items=1)]


def fits(pattern: str, text: str) -> AfterValidator:
    """Return a check that a text matches a whole pattern; `text` says what is wrong with one that does not."""

    def checked(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{shown(value)} {text}")
        return value

    return AfterValidator(checked)


def word_or(*words: str, form: type, remedy: str) -> Callable[[Any], Any]:
    """Return a check that a value is one of `words`, a list or, by `form`, a mapping. `remedy` ends its message."""

    def checked(value: Any) -> Any:
        if isinstance(value, list if form is list else dict) or value in words:
            return value
        raise ValueError(f"{kind(value)} is not allowed; {remedy}")

    return checked


def at_least(other: str) -> AfterValidator:
    """Return a check that a number is not less than the field `other`, which is read before."""

    def checked(number: int, info: ValidationInfo) -> int:
        least = (info.data or {}).get(other, number)
        if info.context is not None and number < least:
            raise ValueError(f"{number} is less than {other} ({least}); give at least as many")
        return number

    return AfterValidator(checked)
