"""The output of an image is not trusted: it is understood or refused, and never raises any other error."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model.measured import Facts, SeenGpu
from harness.run.docker.attach import Demux
from harness.run.trial import messages
from harness.run.trial.messages import Hello, MessageLines, Misunderstood, parse_message

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


def parsed(kind: str, **fields: object) -> Any:
    return parse_message(json.dumps({"type": kind, **fields}).encode())


@given(value=ANYTHING, kind=st.sampled_from(sorted(messages.MESSAGES)))
def test_no_field_can_raise_anything_else(value: object, kind: str) -> None:
    names = messages.MESSAGES[kind].model_fields
    whole = {"end": "crash", "look": {}, "name": "a", "text": "", "columns": {"step": []}}
    for fields in (
        dict.fromkeys([*names, "x"], value),
        *({**whole, name: value} for name in names),
        {"columns": {"step": value}},
        {"end": "crash", "not_finite": {"loss": value}},
        {"gpus": [value], "\ud800": value},
    ):
        with contextlib.suppress(Misunderstood):
            told = parsed(kind, **fields)
            facts = asdict(Facts(**told.told())) if isinstance(told, Hello) else None
            json.dumps(facts, allow_nan=False, ensure_ascii=False).encode()


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
        parsed("samples", columns=columns)


def test_what_is_too_large_to_reckon_with_is_missing() -> None:
    """A diverging loss does not end the trial, and its square is still a number."""
    columns = parsed("samples", columns={"step": [1, 2], "loss": [1e30, -1e31]}).columns
    assert str(columns["loss"].tolist()) == "[1e+30, nan]"
    for value in (1e31, 10**400, float("inf"), float("nan")):
        with pytest.raises(Misunderstood):
            parsed("done", end="completed", peak_rss_kib=value)
    with pytest.raises(Misunderstood):
        parsed("progress", step=10**20)


def test_facts_are_typed_and_others_are_ignored() -> None:
    """An image may send anything: readers must find what the record says, or nothing."""
    sent = {"packages": {"six": "1"}, "libc": None, "huge": True, "cpu": "\ud800", "libraries": ["a"]}
    assert Facts(**parsed("hello", **sent, step_shape="bar").told()) == Facts(
        packages={"six": "1"}, cpu="?", libraries=("a",), step_shape="bar", told_steps=True
    )  # fmt: skip
    gpus = [{"index": 0, "uuid": "GPU-1", "ecc": None, "power_limit_w": 450.0}]
    assert parsed("hello", gpus=gpus).told()["gpus"] == (SeenGpu(index=0, uuid="GPU-1", power_limit_w=450.0),)
    for name, value in (("packages", {"a": {"b": 1}}), ("libraries", [1]), ("gpus", [3]), ("setup_s", 10**400)):
        with pytest.raises(Misunderstood):
            parsed("ready", **{name: value})


def test_text_is_bounded_and_can_be_written() -> None:
    assert len(parsed("done", end="crash", message="\ud800" + "y" * (1 << 17)).message) == 64 << 10
    assert parsed("done", end="crash", message="a\ud800").message.encode() == b"a?"


def test_what_is_wrong_is_named_without_what_was_sent() -> None:
    """An error may be shown in a terminal."""
    for fields in ({"end": "\x1b[31m" * 1000}, {"end": "crash", "not_finite": {"\x1b": 1}}):
        with pytest.raises(Misunderstood) as raised:
            parsed("done", **fields)
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 300


@given(parts=PARTS, cut=st.integers(1, 20))
def test_frames_may_be_cut_anywhere(parts: list[bytes], cut: int) -> None:
    """Even frames are stdout, odd frames are stderr."""
    stream = b"".join(bytes([1 + i % 2, 0, 0, 0]) + len(part).to_bytes(4, "big") + part for i, part in enumerate(parts))
    demux = Demux()
    stdout = b"".join(demux.feed(stream[at : at + cut]) for at in range(0, len(stream), cut))
    assert stdout == b"".join(parts[::2])
    assert demux.stderr.text() == b"".join(parts[1::2]).decode(errors="replace")
