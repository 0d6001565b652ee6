from __future__ import annotations

import pytest

from harness import amounts
from harness.model import Effect


@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        (42.0, 42.000000001, ("42", "42.000000001")),
        (0.50123, 0.50131, ("0.5012", "0.5013")),
        (0.1 + 0.2, 0.3, ("0.30000000000000004", "0.3")),
        (1e-12, 2e-12, ("0.000000000001", "0.000000000002")),
        (1.0, 2.0, ("1", "2")),
        (1.0, 1.0, ("1", "1")),
    ],
)
def test_two_numbers_that_differ_look_different(one: float, other: float, texts: tuple[str, str]) -> None:
    """A finding read `checksum 42 → 42`."""
    digits = amounts.digits_apart(one, other)
    assert (amounts.number(one, digits=digits), amounts.number(other, digits=digits)) == texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7.838, "7.84"), (0.00282, "0.00282"), (12.86, "12.9"), (107486, "107,486"), (0.5, "0.5"), (12.0, "12"),
        (9.999, "10"), (-0.0005, "-0.0005"), (0, "0"), (1e-9, "0"), (-1e-9, "0"), (float("nan"), "unknown"),
        (float("inf"), "unknown"),
    ],
)  # fmt: skip
def test_number_has_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert amounts.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(7.838, "7.8"), (24.24, "24"), (9.97, "10"), (1.04, "1.0"), (313.2, "310"), (12345, "12,000"), (0.0061, "0.0061"),
     (-0.31, "-0.31"), (0, "0"), (float("nan"), "unknown")],
)  # fmt: skip
def test_a_sentence_has_two_digits(value: float, text: str) -> None:
    assert amounts.rough(value) == text


def test_durations_of_steps_keep_their_digits_so_that_neighbours_compare() -> None:
    assert [amounts.in_unit(value, "ms") for value in (0.0143, 0.41, 2.303, 849, 107486)] == [
        "14.3 µs", "0.410 ms", "2.30 ms", "849 ms", "107 s",
    ]  # fmt: skip


def test_a_tiny_number_without_a_unit_has_its_digits() -> None:
    """A residual of 3.9e-11 was `0`."""
    assert [amounts.in_unit(3.947984e-11, unit) for unit in ("", "KiB/step")] == ["3.95e-11", "0 KiB/step"]


def test_large_amounts_change_their_unit() -> None:
    assert amounts.in_unit(7.838, "KiB/step") == "7.84 KiB/step"
    assert amounts.in_unit(2048, "KiB/step") == "2 MiB/step"
    assert amounts.in_unit(512, "MiB") == "512 MiB"
    assert amounts.in_unit(2048, "MiB") == "2 GiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (7200, "2 h")],
)
def test_duration(seconds: float, text: str) -> None:
    assert amounts.duration(seconds) == text


def test_effects_carry_their_unit_and_interval() -> None:
    assert amounts.effect(Effect(value=7.838, unit="KiB/step", ci=(7.83, 7.85))) == "7.84 (7.83 to 7.85) KiB/step"
    assert amounts.effect(Effect(value=1.123, unit="ratio", ci=(1.11, 1.135))) == "+12.3 (11 to 13.5) %"
    assert amounts.effect(Effect(value=0.9, unit="ratio")) == "-10 %"
    assert amounts.effect(Effect(value=0.00851, unit="ratio")) == "-99.1 %"
    assert amounts.effect(Effect(value=0.00001, unit="ratio")) == "0.00001×"
    assert amounts.effect(Effect(value=1e-13, unit="ratio", ci=(9e-14, 2e-13))) == "-100 %", "no items at all"
    assert amounts.effect(Effect(value=5.62, unit="ratio", ci=(5.5, 5.7))) == "5.62× (5.5 to 5.7)"
    assert amounts.effect(Effect(value=0.375, unit="failures", ci=(0.0852, 0.755))) == (
        "fails in 37.5 (8.52 to 75.5) % of launches"
    )
    assert amounts.effect(Effect(value=3, unit="threads")) == "3 threads"
    assert amounts.change(Effect(value=0.00453, unit="s/step")) == "+4.53 ms/step", "not 0.00453 s, beside 5.88 ms"
    assert amounts.effect(Effect(value=0.00453, unit="s/step", ci=(0.004, 0.0051))) == "4.53 (4.00 to 5.10) ms/step"


def test_counts_agree_with_their_noun() -> None:
    """A cell that was launched once read "1 of 1 launches"."""
    assert [amounts.count(amount, "launch") for amount in (0, 1, 1200)] == ["0 launches", "1 launch", "1,200 launches"]
    assert [amounts.plural("step", n) for n in (1, 2000)] == ["step", "steps"]


def test_a_tiny_p_is_not_called_nothing() -> None:
    assert amounts.probability(1e-7) == "p < 0.0001"
    assert amounts.probability(0.001) == "p = 0.001"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(151.2, 2, "150"), (12345.6, 4, "12,350"), (7.8, 3, "7.8"), (1234.0, 4, "1234"), (0.5, 6, "0.5")],
)
def test_large_numbers_have_no_exponent(value: float, digits: int, text: str) -> None:
    """A headline said that launches `take 1.5e+02 % longer`."""
    assert amounts.general(value, digits) == text
