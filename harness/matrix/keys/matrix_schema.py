"""Generates the JSON Schema of matrix.yaml from its shape, for editors and other programs."""

from __future__ import annotations

from typing import Any

from harness.matrix.keys import MatrixFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """Return the schema of matrix.yaml as plain data."""
    generated = _tidy(MatrixFile.model_json_schema())
    return {"$schema": DIALECT, **generated, "title": "matrix.yaml"}


def _tidy(value: Any) -> Any:
    """Remove what does not apply to the file, but only to the records: nulls, and defaults in the records' units."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _tidy(item) for key, item in value.items() if not (key == "default" and _is_record(item))}
    choices = [choice for choice in kept.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        kept = {**{key: item for key, item in kept.items() if key != "anyOf"}, **choices[0]}
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    return kept


def _is_record(default: Any) -> bool:
    """Return whether no user would write a default like this: null, or a whole record in the records' units."""
    return default is None or isinstance(default, dict | list)
