"""The output of an image is not trusted: it is understood or refused, and never raises any other error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.run.docker.attach import Demux
from harness.run.trial import messages
from harness.run.trial.messages import (
    MessageLines,
    Misunderstood,
    columns_of,
    count_of,
    facts_of,
    look_of,
    not_finite_of,
    number_of,
    parse_message,
    text_of,
    whole_number_of,
)

MARKER = "00ff"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.lists(st.binary(max_size=9), max_size=30)


@given(noise=st.binary(max_size=50), cut=st.integers(1, 40))
def test_a_marked_line_is_found_in_any_noise_and_any_cut(noise: bytes, cut: int) -> None:
    stream = noise + b"\n00ff {}\n" + noise
    lines = MessageLines(MARKER)
    found = [text for at in range(0, len(stream), cut) for text in lines.feed(stream[at : at + cut])]
    assert b"{}\n" in found


def test_an_endless_line_of_noise_costs_no_memory_and_hides_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LINE_LIMIT_BYTES", 1000)
    lines = MessageLines(MARKER)
    for _ in range(100):
        assert list(lines.feed(b"x" * 400)) == []
    assert len(lines._open) <= 1401
    assert list(lines.feed(b"00ff hidden\n00ff {}\n")) == [b"{}\n"]


def test_an_endless_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LINE_LIMIT_BYTES", 1000)
    with pytest.raises(Misunderstood):
        list(MessageLines(MARKER).feed(b"00ff " + b"x" * 2000))


def test_noise_keeps_its_end() -> None:
    lines = MessageLines(MARKER)
    list(lines.feed(b"first\n" + b"x" * (1 << 18) + b"\nlast \x1b[31m\xff\n"))
    text = lines.noise.text()
    assert text.endswith("last \x1b[31m\ufffd\n")
    assert len(text) <= 64 << 10


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[1]",
        b"{}",
        b'{"type": "other"}',
        b'{"type": 1}',
        b'{"type": []}',
        b'{"type": "done", "x": NaN}',
        b'{"type": "done", "x": -Infinity}',
        b'{"type": "done", "x": 1e999}',
        b'{"type": "hello", "x": {"y": [-1E999]}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_refused(text: bytes) -> None:
    with pytest.raises(Misunderstood):
        parse_message(text)


@given(value=ANYTHING)
def test_no_field_can_raise_anything_else(value: object) -> None:
    message = {"type": "done", "x": value, "columns": value, "look": value, "step": value}
    for reader in (number_of, whole_number_of, text_of):
        try:
            reader(message, "x")
        except Misunderstood:
            continue
    for action in (
        lambda: count_of(message, "x", most=10),
        lambda: json.dumps(facts_of(message), allow_nan=False),
        lambda: columns_of(message),
        lambda: columns_of({"columns": {"step": value}}),
        lambda: look_of(message, allowed=(500,)),
        lambda: not_finite_of(message),
        lambda: not_finite_of({"not_finite": value}),
        lambda: not_finite_of({"not_finite": {"loss": value}}),
    ):
        try:
            action()
        except Misunderstood:
            continue


@pytest.mark.parametrize(
    "columns",
    [
        {"step": [1, 2], "rss_kib": [1]},
        {"rss_kib": [1]},
        {"step": ["1"]},
        {"step": [True]},
        {"step": [None]},
        {"step": [10**400]},
        {"step": [1e31]},
        {"step": [1], **{f"c{i}": [1] for i in range(64)}},
    ],
)
def test_columns_that_are_none_are_refused(columns: object) -> None:
    with pytest.raises(Misunderstood):
        columns_of({"type": "samples", "columns": columns})


def test_what_is_too_large_to_reckon_with_is_missing() -> None:
    """A diverging loss does not end the trial, and its square is still a number."""
    columns = columns_of({"type": "samples", "columns": {"step": [1, 2], "loss": [1e30, -1e31]}})
    assert str(columns["loss"].tolist()) == "[1e+30, nan]"
    for value in (1e31, 10**400, float("inf"), float("nan")):
        with pytest.raises(Misunderstood):
            number_of({"type": "done", "x": value}, "x")
    with pytest.raises(Misunderstood):
        count_of({"type": "done", "x": 10**20}, "x", most=float("inf"))


def test_facts_are_flat_and_can_be_written() -> None:
    message = {"type": "hello", "packages": {"six": "1"}, "limit": None, "huge": True, "cpu": json.loads('"\\ud800"')}
    assert facts_of(message) == {"packages": {"six": "1"}, "limit": None, "huge": True, "cpu": "?"}
    gpus = [{"index": 0, "uuid": "GPU-1", "ecc": None, "power_limit_w": 450.0}]
    assert facts_of({"type": "hello", "gpus": gpus}) == {"gpus": gpus}
    for value in ({"a": {"b": 1}}, [[1]], [{"a": {}}], [{"a": [1]}], 10**400, float("inf")):
        with pytest.raises(Misunderstood):
            facts_of({"type": "ready", "x": value})


def test_text_is_bounded_and_can_be_written() -> None:
    text = text_of({"message": json.loads('"\\ud800"') + "y" * (1 << 17)}, "message")
    assert len(text) == 64 << 10
    assert text_of({"message": json.loads('"a\\ud800"')}, "message").encode() == b"a?"


@given(parts=PARTS, cut=st.integers(1, 20))
def test_frames_may_be_cut_anywhere(parts: list[bytes], cut: int) -> None:
    """Even frames are stdout, odd frames are stderr."""
    stream = b"".join(bytes([1 + i % 2, 0, 0, 0]) + len(part).to_bytes(4, "big") + part for i, part in enumerate(parts))
    demux = Demux()
    stdout = b"".join(demux.feed(stream[at : at + cut]) for at in range(0, len(stream), cut))
    assert stdout == b"".join(parts[::2])
    assert demux.stderr.text() == b"".join(parts[1::2]).decode(errors="replace")
