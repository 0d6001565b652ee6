"""The harness's own source, which some tests read: each file is parsed and searched once per process."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def nodes(path: Path, kind: type[ast.AST]) -> Sequence[Any]:
    """Return the nodes of one type, such as `ast.Import`, in the order of `ast.walk`."""
    return _by_kind(path).get(kind, ())


@cache
def _by_kind(path: Path) -> Mapping[type[ast.AST], Sequence[ast.AST]]:
    found = defaultdict(list)
    for node in ast.walk(tree(path)):
        found[type(node)].append(node)
    return found
