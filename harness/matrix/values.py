"""Parses the values of the keys in matrix.yaml: sizes, durations, shares, addresses.

Each parser takes a YAML value, and raises ValueError with the problem and the remedy.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from harness import model
from harness.matrix.problems import shown

UNITS = {
    "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
    "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip
MOST_BYTES = 1 << 60
MOST_SECONDS = 30 * 24 * 3600
MOST_A_STEP = 1e6

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_DURATION = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<ms>[0-9]+(?:\.[0-9]+)?)ms"
    r"|(?:(?P<h>[0-9]+)h)?(?:(?P<m>[0-9]+)m)?(?:(?P<s>[0-9]+(?:\.[0-9]+)?)s)?"
)


class IntAsWritten(int):
    """A whole number that keeps its written form: 010 and 0x10 stay as the file has them."""

    written: str

    def __new__(cls, text: str) -> IntAsWritten:
        base = {"0x": 16, "0o": 8}.get(text[:2], 10)
        number = super().__new__(cls, text, base)
        number.written = text
        return number


class FloatAsWritten(float):
    """A number that keeps its written form: the version 1.10 is not 1.1."""

    written: str

    def __new__(cls, text: str) -> FloatAsWritten:
        number = super().__new__(cls, text)
        number.written = text
        return number


def kind(value: object) -> str:
    """Return a description of a value for a message: `a list`, `'x'`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return shown(value)


def plain_text(value: Any) -> str:
    """Return text, or a number as written in the file. It must not be empty."""
    result = getattr(value, "written", value)
    if not isinstance(result, str):
        hint = "; put it in quotes" if isinstance(value, bool) else ""
        raise ValueError(f"must be text, not {kind(value)}{hint}")
    if not result.strip():
        raise ValueError("is empty; write some text")
    if "\n" in result or "\t" in result:
        raise ValueError("has more than one line, or a tab; write one line")
    return result


def anything(value: Any) -> str:
    """Return any text, even if it is empty or has several lines: an environment variable, a command's argument."""
    return value if isinstance(value, str) else plain_text(value)


def whole_number(value: Any) -> int:
    """Return a whole number. Quoted numbers are accepted too, since variables give text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]{1,18}", value):
        return int(value)
    raise ValueError(f"must be a whole number, not {kind(value)}")


def truth(value: Any) -> bool:
    """Return true or false. Quoted words are accepted too, since variables give text."""
    if isinstance(value, bool) or value in ("true", "false"):
        return value is True or value == "true"
    raise ValueError(f"must be true or false, not {kind(value)}")


def parallel(value: Any) -> bool | int | str:
    """Return `auto`, true, false or a number of launches. Quoted words are accepted too, since variables give text."""
    if isinstance(value, str) and value == "auto":
        return value
    for read in (truth, whole_number):
        with contextlib.suppress(ValueError):
            result: bool | int = read(value)
            if result is False or result >= 1:
                return result
    raise ValueError(f"must be auto, true, false or a number of launches, not {kind(value)}")


def exact_size(value: Any) -> Decimal:
    """Return the bytes of a size such as `0.5KiB`, exactly. A unit is required: a bare 8 could be bytes or GiB."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if not match or match[2] not in UNITS:
        raise ValueError(f"{kind(value)} is not a size; write one such as 8GiB; units: {', '.join(UNITS)}")
    result = Decimal(match[1]) * UNITS[match[2]]
    if result > MOST_BYTES:
        raise ValueError(f"{kind(value)} is too large a size")
    return result


def whole_bytes(value: Any) -> int:
    """Return a size of memory or disk in whole bytes, at least one."""
    result = int(exact_size(value))
    if result < 1:
        raise ValueError(f"{kind(value)} is less than one byte")
    return result


def leak_kib(value: Any) -> float:
    """Return a size per step in KiB; it must be positive."""
    if not (isinstance(value, str) and _SIZE.fullmatch(value)):
        raise ValueError(f"{kind(value)} is not a size per step; write one such as 0.5KiB")
    result = exact_size(value)
    if result <= 0:
        raise ValueError("0 would make every trace a leak; write a size such as 0.5KiB")
    return float(result / 1024)


def _written(value: Any) -> str:
    """Return a number or text as written in the file; "" for true and false."""
    return "" if isinstance(value, bool) else str(getattr(value, "written", value))


def seconds(value: Any) -> float:
    """Return the seconds of `1h30m`, `20m`, `90s`, `500ms`, or a number of seconds."""
    match = _DURATION.fullmatch(written) if (written := _written(value)) else None
    if not match:
        raise ValueError(f"{kind(value)} is not a duration; write 20m, 90s, 1h30m, or a number of seconds")
    parts = {unit: Decimal(number or 0) for unit, number in match.groupdict().items()}
    result = parts["h"] * 3600 + parts["m"] * 60 + parts["s"] + parts["number"] + parts["ms"] / 1000
    if not 0 < result <= MOST_SECONDS:
        raise ValueError(f"{kind(value)} is out of range; it must be more than 0 and at most 30 days (720h)")
    return float(result)


def fraction(value: Any) -> float:
    """Return 0.1 for `10%` or 0.1. A number above 1 without a % is refused: 10 would mean 1000 %."""
    written = _written(value)
    percent = written.endswith("%")
    number = written.removesuffix("%").rstrip()
    if not _NUMBER.fullmatch(number):
        raise ValueError(f"{kind(value)} is not a share; write 10% or 0.1")
    result = Decimal(number) / (100 if percent else 1)
    if result > 1 and not percent:
        raise ValueError(f"{number} would be {result * 100} %; write {number}% or a number up to 1")
    if not 0 < result <= 1000:
        raise ValueError(f"{kind(value)} is out of range; it must be more than 0%")
    return float(result)


def or_none(parse: Callable[[Any], float]) -> Callable[[Any], float | None]:
    """Return a parser that also accepts the word none, for which it returns None."""
    return lambda value: None if value == "none" else parse(value)


def amount_per_step(value: Any) -> float:
    """Return a positive amount per step, such as 0.01. Its key also accepts the word none."""
    written = _written(value)
    if not _NUMBER.fullmatch(written):
        raise ValueError(f"{kind(value)} is not an amount per step; write a number such as 0.01, or none")
    if not 0 < float(written) <= MOST_A_STEP:
        raise ValueError(f"{kind(value)} is out of range; it must be more than 0 and at most {MOST_A_STEP:g} per step")
    return float(written)


def scalar(value: Any) -> str | int | float | bool | None:
    """Return the value of a parameter: text, number, true, false or null, without its written form."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if not isinstance(value, float):
        raise ValueError(f"must be text, a number, true, false or null, not {kind(value)}")
    if math.isinf(value):
        raise ValueError(f"{getattr(value, 'written', value)} is too large a number")
    return float(value)


ADDRESS = re.compile(r"context:[A-Za-z0-9][A-Za-z0-9_.+-]*|(?:ssh|tcp)://[^\s/]+(?:/\S*)?|unix:///\S+")
ADDRESSES = "context:NAME, ssh://[USER@]HOST, tcp://HOST:PORT, unix:///PATH"


def engine_address(engine: str) -> str:
    """Return the address of an engine, checked."""
    if model.engine_kind(engine) and engine in model.ENGINES:
        return engine
    allowed = f"{', '.join(model.ENGINES)}, {ADDRESSES}"
    if not ADDRESS.fullmatch(engine):
        raise ValueError(f"unknown engine {shown(engine)}; allowed: {allowed}")
    try:
        address = urlsplit(engine)
        port = address.port
    except ValueError as error:  # "Port out of range 0-65535", "Invalid IPv6 URL"
        raise ValueError(f"{shown(engine)} is not an address: {error}; allowed: {allowed}") from error
    if address.password is not None:  # do not show it: it is a secret
        raise ValueError("a password does not belong in an address; use a key, and ssh://USER@HOST")
    if address.scheme == "tcp" and not (address.hostname and port):
        raise ValueError(f"{shown(engine)} names no host or port; write tcp://HOST:PORT, such as tcp://gpu-1:2376")
    if address.scheme == "ssh" and not address.hostname:
        raise ValueError(f"{shown(engine)} names no host; write ssh://[USER@]HOST")
    return engine
