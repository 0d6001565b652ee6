"""A typing mistake in a matrix file is reported where it was made, in words that need no knowledge of parsers."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import MatrixError
from harness.matrix import load_matrix

GOOD = """\
version: 1
series:
  x: {install: ["x=={version}"], versions: ["1", "2"]}
hosts:
  here: {engine: process}
scenarios:
  s:
    script: s.py
    params: {size: [10]}
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"2"]}', '"2"]', "3: is not YAML: the { that begins here is never closed, or lacks a comma on line 4"),
        ('"2"]}', '"2"}', "3: is not YAML: the [ that begins here is never closed, or lacks a comma on line 3"),
        ('"2"', '"2', "3: is not YAML: the quote that begins here is never closed"),
        ("    params", "   params", "9: is not YAML: this line does not fit those above it; indent"),
        ("    params: {size: [10]}", "    params", "9: is not YAML: a key without a colon; write `key: value`"),
        ("process}", "*process}", "5: is not YAML: no value above is marked &process; a text that begins with *"),
        ("s.py", "@s.py", "8: is not YAML: a text that begins with @ must be in quotes"),
        ("s.py", "s.py: x", "8: is not YAML: a colon is not allowed here; indent"),
        ("    script", "\tscript", "8: is not YAML: a tab is used for indentation; use spaces"),
        ("script: s.py", "script: >=2", "8: is not YAML: a value that begins with > or | must be in quotes"),
    ],
)
def test_where_the_slip_is_and_what_to_do(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in GOOD
    path = tmp_path / "matrix.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(MatrixError) as caught:
        load_matrix(path, environ={})
    assert str(caught.value).startswith(f"{path}:{told}")
