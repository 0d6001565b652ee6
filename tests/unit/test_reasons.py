"""The sentences of all reasons stand in `harness/reasons`: who rewrites one finds it there, and breaks no code."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import get_args

import pytest

import harness
from harness import reasons
from harness.model import Doubt
from harness.model.measured import TRACEBACK
from tests.unit import source

CODE = Path(harness.__file__).parent
ENUMERATIONS = {each.__name__: each for each in reasons.Reason.__subclasses__()}
WITHOUT_SENTENCES = (
    "flows/running.py",
    "flows/running_row.py",
    "judge",
    "narrow/coupling.py",
    "narrow/evidence.py",
    "narrow/hybrids.py",
    "narrow/inventory.py",
    "narrow/isolate.py",
    "narrow/launches.py",
    "narrow/search.py",
    "plan",
    "schedule",
)
"""Rooms and files that give reasons and have no sentence of their own; messages of raised errors are exempt."""
WORDS_OF_A_SENTENCE = 3
CODES = frozenset((*get_args(Doubt), TRACEBACK))
"""Texts of three words that files hold as codes, and the line with which Python begins a traceback."""


def members() -> Iterator[tuple[str, reasons.Reason]]:
    for name, enumeration in ENUMERATIONS.items():
        for member in enumeration:
            yield f"{name}.{member.name}", member


def fields(template: str) -> set[str]:
    return {
        name.partition(".")[0].partition("[")[0] for _, name, _, _ in Formatter().parse(template) if name is not None
    }


def files() -> list[Path]:
    return [path for path in sorted(CODE.rglob("*.py")) if CODE / "reasons" not in path.parents]


def mentions(path: Path) -> Iterator[tuple[str, ast.Attribute]]:
    for node in source.nodes(path, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id in ENUMERATIONS:
            yield f"{node.value.id}.{node.attr}", node


def either(called: ast.expr) -> Iterator[ast.expr]:
    """Yield what a call calls: of `(a if b else c)(...)` both a and c."""
    if isinstance(called, ast.IfExp):
        yield from (*either(called.body), *either(called.orelse))
    else:
        yield called


def test_every_reason_is_given_somewhere() -> None:
    given = {name for path in files() for name, _ in mentions(path)}
    assert {name for name, _ in members()} == given


def test_one_trial_is_in_the_singular() -> None:
    """A cell that was launched once read "1 of 1 launches"."""
    assert reasons.CellReason.AGREED(agreeing=1, trials=1, why="x") == "1 of 1 launch: x"
    assert reasons.CellReason.EXITED_0(good=2, launches=3) == "exit 0 in 2 of 3 launches"
    assert reasons.CellReason.STEPS_MADE(count=1) == "it made 1 step"


def test_large_numbers_have_no_exponent() -> None:
    """A headline said that launches `take 1.5e+02 % longer`."""
    text = reasons.SignalReason.TWO_MODES(slow=11, launches=15, longer=151.2)
    assert text == "11 of 15 launches take 150 % longer than the others"


def test_every_call_gives_all_values_of_the_sentence() -> None:
    """A missing value would be a traceback at the end of a sweep of hours."""
    templates = {name: fields(str(member.value)) for name, member in members()}
    wrong = []
    for path in files():
        called = {id(func): node for node in source.nodes(path, ast.Call) for func in either(node.func)}
        for name, node in mentions(path):
            call = called.get(id(node))
            given = {keyword.arg for keyword in call.keywords} if call is not None else set()
            if templates[name] != given:
                wrong.append((str(path.relative_to(CODE)), node.lineno, name))
    assert not wrong


def test_no_sentence_stands_twice() -> None:
    assert not [text for text, count in Counter(str(member.value) for _, member in members()).items() if count > 1]


@pytest.mark.parametrize("room", WITHOUT_SENTENCES)
def test_rooms_that_give_reasons_have_no_sentences(room: str) -> None:
    paths = [CODE / room] if room.endswith(".py") else sorted((CODE / room).rglob("*.py"))
    assert paths
    assert not [(str(path.relative_to(CODE)), line, text) for path in paths for line, text in sentences(path)]


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of three words or more of a file, with their lines: no docstrings, no messages of errors."""
    tree = source.tree(path)
    exempt: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Raise, ast.Assert)) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            exempt |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            text = "".join(parts)
            for part in node.values:
                exempt.add(id(part))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) in exempt or text in CODES:
            continue
        if len([word for word in text.split() if word.isalpha()]) >= WORDS_OF_A_SENTENCE:
            yield node.lineno, text
