"""Sizes, durations, shares and variables are read as they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.matrix.read_yaml import substitute
from harness.model import forms as values

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
TEXTS = st.text(max_size=30)
PLAIN = TEXTS.filter(lambda text: "$" not in text and "}" not in text)


@given(number=st.integers(1, 10**6), unit=st.sampled_from(sorted(values.UNITS)))
def test_sizes_are_exact(number: int, unit: str) -> None:
    expected = number * values.UNITS[unit]
    if expected <= values.MOST_BYTES:
        assert values.whole_bytes(f"{number}{unit}") == values.whole_bytes(f"{number} {unit}") == expected
    else:
        with pytest.raises(ValueError, match="too large"):
            values.whole_bytes(f"{number}{unit}")


@given(eighths=st.integers(1, 10**6))
def test_leaks_are_in_kib(eighths: int) -> None:
    assert values.leak_kib(f"{eighths / 8:.3f}KiB") == eighths / 8


@given(hours=st.integers(0, 100), minutes=st.integers(0, 1000), seconds=st.integers(0, 1000))
def test_durations(hours: int, minutes: int, seconds: int) -> None:
    text = "".join(f"{n}{unit}" for n, unit in ((hours, "h"), (minutes, "m"), (seconds, "s")) if n)
    total = hours * 3600 + minutes * 60 + seconds
    if total:
        assert values.seconds(text) == values.seconds(total) == total
    assert values.seconds(f"{total + 1}ms") == pytest.approx((total + 1) / 1000)


@given(percent=st.integers(1, 100))
def test_shares(percent: int) -> None:
    assert values.fraction(f"{percent}%") == values.fraction(values.FloatAsWritten(f"{percent / 100:.2f}"))
    assert values.fraction(f"{percent}%") == pytest.approx(percent / 100)


def test_a_share_that_may_be_none() -> None:
    assert values.or_none(values.fraction)("none") is None
    assert values.or_none(values.fraction)("10%") == pytest.approx(0.1)
    with pytest.raises(ValueError, match="nothing is not a share"):
        values.or_none(values.fraction)(None)


@pytest.mark.parametrize(
    "parse", [values.exact_size, values.seconds, values.fraction, values.whole_number, values.truth]
)
@pytest.mark.parametrize("value", [None, [], {}, "", "x", "-1", "1e5", "٣", "1.5.5", "nan", "inf", "KiB", "1 1"])
def test_what_is_none_of_these_is_refused(parse: object, value: object) -> None:
    if parse is values.whole_number and value == "-1":
        assert values.whole_number(value) == -1
        return
    with pytest.raises(ValueError, match=r"not|wanted"):
        parse(value)  # type: ignore[operator]


@pytest.mark.parametrize("parse", [values.exact_size, values.seconds, values.fraction, values.whole_number])
def test_true_is_no_number(parse: object) -> None:
    with pytest.raises(ValueError, match="true"):
        parse(True)  # type: ignore[operator]


@given(text=PLAIN)
def test_text_without_variables_is_itself(text: str) -> None:
    assert substitute(text, {}) == text


@given(text=TEXTS)
def test_doubled_dollars_give_the_text_back(text: str) -> None:
    assert substitute(text.replace("$", "$$"), {}) == text


@given(before=PLAIN, name=NAMES, value=TEXTS, default=PLAIN)
def test_variables_as_compose_has_them(before: str, name: str, value: str, default: str) -> None:
    def filled(inside: str, environ: dict[str, str]) -> str:
        return substitute(f"{before}${{{inside}}}.", environ)

    there = {name: value}
    assert filled(name, there) == f"{before}{value}."
    assert filled(f"{name}:-{default}", there) == f"{before}{value or default}."
    assert filled(f"{name}-{default}", there) == f"{before}{value}."
    assert filled(f"{name}:-{default}", {}) == filled(f"{name}-{default}", {}) == f"{before}{default}."
    assert filled(f"{name}+{default}", there) == f"{before}{default}."
    assert filled(f"{name}:+{default}", {}) == f"{before}."
    assert filled(f"{name}:-${{other:-{default}}}", {}) == f"{before}{default}."
    for inside in (name, f"{name}?", f"{name}:?why"):
        with pytest.raises(ValueError, match=f"the variable {name} is not set"):
            filled(inside, {})


def test_values_of_variables_are_not_read_again() -> None:
    assert substitute("$A ${A}", {"A": "${B} $C"}) == "${B} $C ${B} $C"


def test_variables_nested_without_end_are_refused() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        substitute("${A:-" * 50 + "}" * 50, {})
