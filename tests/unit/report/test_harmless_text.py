from __future__ import annotations

import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report.text.harmless_text import plain, plain_lines, shortened, spelled, version

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("1.15.4+nv20.12", "1.15.4+nv20.12"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07rest", "rest"),
        ("lone \x1b escape", "lone  escape"),
        ("two\nlines\r\n", "two lines"),
        ("nul\x00l", "null"),
        ("\u202egnp.exe", "gnp.exe"),
        ("\ud800", "\N{REPLACEMENT CHARACTER}"),
        ("\ufffe", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_plain(text: str, cleaned: str) -> None:
    assert plain(text) == cleaned


@given(ANY_TEXT)
def test_plain_text_is_one_harmless_line(text: str) -> None:
    cleaned = plain(text)
    assert not {unicodedata.category(character) for character in cleaned} & {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
    assert plain(cleaned) == cleaned


@given(ANY_TEXT)
def test_plain_text_is_valid_in_xml(text: str) -> None:
    """A JUnit file that does not parse loses every result in it."""
    element = ElementTree.Element("a", b=plain(text))
    assert ElementTree.fromstring(ElementTree.tostring(element)).get("b") == plain(text)


@given(ANY_TEXT, st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
def test_spelled_text_can_always_be_written(text: str, encoding: str) -> None:
    spelled(plain(text), encoding=encoding).encode(encoding)


def test_signs_are_spelled_in_ascii() -> None:
    assert spelled("✗ ≤0.02 µs → 5×", encoding="ascii") == "x <=0.02 us -> 5x"


def test_long_text_is_cut_with_a_sign() -> None:
    assert shortened("a" * 20, most=5) == "aaaa…"
    assert shortened("aaaaa", most=5) == "aaaaa"


def test_the_last_lines_are_kept() -> None:
    assert plain_lines("1\n2\x00\n3\n", most=2) == ["2", "3"]


def test_a_digest_is_as_short_as_docker_shows_it() -> None:
    """Seventy characters would push everything else out of a table."""
    assert version(f"22.12@sha256:{'0123456789abcdef' * 4}") == "22.12@sha256:0123456789ab"
    assert version("1.15.5+nv22.12") == "1.15.5+nv22.12"
