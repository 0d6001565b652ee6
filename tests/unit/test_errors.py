from __future__ import annotations

import pytest

from harness.errors import EngineUnreachable, MatrixError, MatrixErrors


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
