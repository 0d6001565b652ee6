"""Defines what the records of a matrix file have in common: they read themselves, and name their place in it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar


class Later:
    """A module that is imported when a name in it is first used: pydantic, which reads files, is slow to import."""

    def __init__(self, name: str) -> None:
        self.__name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name), name)


if TYPE_CHECKING:
    from harness.model import forms
else:
    forms = Later("harness.model.forms")


class FromFile:
    """A record that reads a mapping of a matrix file, which has only the keys that are its fields. The attributes'
    docstrings describe them in the JSON Schema."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        return forms.described(cls, core, handler)


class ById:
    """A record of a plan, which the other files of its run name by its `id`."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return forms.by_id(cls)


Scalar = str | int | float | bool | None
Key = TypeVar("Key")
Each = TypeVar("Each")


def grouped(pairs: Iterable[tuple[Key, Each]]) -> dict[Key, list[Each]]:
    """Return the second parts of pairs by their first parts, both in the order in which they come."""
    groups: dict[Key, list[Each]] = {}
    for key, each in pairs:
        groups.setdefault(key, []).append(each)
    return groups


def written(value: Scalar) -> str:
    """Return a param's value as the matrix file writes it: `true`, not `True`."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Where:
    """A place in a matrix file; the whole file if `key` is "". It begins messages: `matrix.yaml:14: hosts.new.gpus`."""

    file: str
    line: int
    key: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}" if self.key else self.file
