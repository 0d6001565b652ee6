"""No code reads the harness's own sentences: whoever rewrites one must not change what the harness does.

Only the words of other programs are read, in the places of FOREIGN.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from harness.errors import EngineUnreachable, MatrixError, MatrixErrors
from tests.unit import source

CODE = Path(harness.__file__).parent
TEXTS = {"why", "message", "problem", "remedy", "reason", "unmet", "error"}
"""The names of variables and fields that hold sentences."""
CUTS = {"startswith", "endswith", "partition", "rpartition", "split", "removeprefix", "removesuffix", "find", "index"}
SEARCHES = {"search", "match", "fullmatch", "findall", "finditer", "sub", "split"}
FOREIGN = {
    "agent/serving/tls.py": "OpenSSL",
    "cli/__init__.py": "Python and the dynamic loader",
    "doors.py": "the code of an installed package",
    "flows/looking.py": "the scenario's last line of output",
    "history/database.py": "SQLite",
    "matrix/read_yaml.py": "PyYAML",
    "run/docker/docker_client.py": "the engine",
    "run/docker/containers.py": "the engine",
    "run/images/build_errors.py": "pip and uv",
    "run/images/build_images.py": "the engine",
    "run/images/find_images.py": "the engine",
    "run/images/held_container.py": "pip",
    "run/slurm/queue.py": "Slurm",
    "run/hosts/cell_launcher.py": "the library that lacked a port",
    "run/trial/conversation.py": "the kernel",
    "run/trial/nodes.py": "the library whose rank lost another one",
}
"""The files that read words, and whose words they are."""


def reads_a_sentence(node: ast.AST) -> bool:
    """Return whether a comparison searches in a sentence, or a call cuts one or searches in it."""
    if isinstance(node, ast.Compare):
        return isinstance(node.ops[-1], ast.In | ast.NotIn) and is_sentence(node.comparators[-1])
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in CUTS and is_sentence(node.func.value):
        return True
    return node.func.attr in SEARCHES and any(map(is_sentence, node.args))


def is_sentence(node: ast.AST) -> bool:
    """Return whether an expression is a text named in TEXTS, also as `str(error)` or `why.lower()`."""
    if isinstance(node, ast.Call):
        inner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "lower" else None
        inner = node.args[0] if isinstance(node.func, ast.Name) and node.func.id == "str" and node.args else inner
        return inner is not None and is_sentence(inner)
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) in TEXTS


def readers() -> Iterator[tuple[str, int]]:
    for path in sorted(CODE.rglob("*.py")):
        for kind in (ast.Compare, ast.Call):
            for node in source.nodes(path, kind):
                if reads_a_sentence(node):
                    yield str(path.relative_to(CODE)), node.lineno


@pytest.mark.parametrize(
    "code",
    ['"only" in cell.why', 'message.removeprefix("oom: ")', "STEP.search(trial.message)", '"locked" in str(error)'],
)
def test_a_reader_of_a_sentence_is_found(code: str) -> None:
    assert any(map(reads_a_sentence, ast.walk(ast.parse(code))))


def test_only_the_words_of_other_programs_are_read() -> None:
    """Whether a message named its step, and whether memory had run out, hung on words that anyone might improve."""
    found = list(readers())
    assert [f"{file}:{line}" for file, line in found if file not in FOREIGN] == []
    assert sorted(FOREIGN.keys() - {file for file, _ in found}) == [], "they read no words any more"


# ---------------------------------------------------------------- a message names its place once


@pytest.mark.parametrize(
    ("place", "known", "told"),
    [
        ("m.yaml:4: hosts.a", "m.yaml:4: hosts.a", "gone"),
        ("m.yaml:4: hosts.a.gpus[0]", "m.yaml:4: hosts.a", "gone"),
        ("m.yaml:9: series.s", "m.yaml:4: hosts.a", "m.yaml:9: series.s: gone"),
        ("", "m.yaml:4: hosts.a", "gone"),
    ],
)
def test_a_message_names_a_place_only_to_readers_who_do_not_know_it(place: str, known: str, told: str) -> None:
    """Otherwise versions with the same problem would not share a line, or a reader would look in the wrong place."""
    assert EngineUnreachable("gone", place=place).text_at(known) == told


def test_the_errors_of_a_file_are_told_together_each_once() -> None:
    first, second = (
        MatrixError("is missing", place="m.yaml:1: series"),
        MatrixError("is empty", place="m.yaml:2: hosts"),
    )
    whole = MatrixErrors([first, second, first])
    assert str(whole) == "m.yaml:1: series: is missing\nm.yaml:2: hosts: is empty"
    assert whole.text == "is missing\nis empty"
