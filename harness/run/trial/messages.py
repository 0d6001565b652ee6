"""Parses the agent's messages from the output of an image, which is not trusted.

`MessageLines` finds the marked lines, `parse_message` reads the message in one of them, and the other functions read
the fields of a message. They raise only `Misunderstood`. `Samples` joins what they report to a trace.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, get_args

import numpy as np

from harness.masking import told
from harness.model import GROWTHS, End, Floats, Look, Trace
from harness.model.measured import LOOK_COLUMNS, MOST_COLUMNS, beyond_any_trace
from harness.run.interruptible import BoundedTail

LINE_LIMIT_BYTES = 16 << 20
FACTS_LIMIT_BYTES = 1 << 20
TEXT_LIMIT = 64 << 10
HEAD_LIMIT = 16 << 10
METRICS_LIMIT = 16
NUMBER_LIMIT = 1e30
"""Largest magnitude of a measurement; products of larger numbers may overflow."""
COUNT_LIMIT = 1 << 53

TYPES = ("hello", "ready", "progress", "samples", "counts", "look", "file", "done")
ENDS = frozenset(get_args(End)) - {"interrupted"}

Message = Mapping[str, Any]


class Misunderstood(Exception):
    """A marked line that is not a valid message of the protocol."""


class MessageLines:
    """Splits a stream of bytes into the agent's marked lines, and keeps the end of everything else in `noise`."""

    def __init__(self, marker: str) -> None:
        self._start = marker.encode() + b" "
        self._open = bytearray()
        self._searched = 0
        self.noise = BoundedTail(TEXT_LIMIT)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the JSON text of each marked line that `data` completes."""
        self._open += data
        while (end := self._open.find(b"\n", self._searched)) >= 0:
            line = bytes(self._open[: end + 1])
            del self._open[: end + 1]
            self._searched = 0
            if line.startswith(self._start):
                if len(line) > LINE_LIMIT_BYTES + len(self._start):
                    raise Misunderstood("a line longer than 16 MiB")
                yield line[len(self._start) :]
            else:
                self.noise.add(line)
        self._searched = len(self._open)
        if len(self._open) > LINE_LIMIT_BYTES:
            self._drop_open()

    def _drop_open(self) -> None:
        """Move an unfinished line that is too long to `noise`. Raises Misunderstood if it is a message."""
        if self._open.startswith(self._start):
            raise Misunderstood("a line longer than 16 MiB")
        self.noise.add(bytes(self._open))
        # The next data continues this line: a byte that begins no marker stands for the part that was moved.
        self._open[:] = b" "
        self._searched = 1

    def rest(self) -> None:
        """Treat an unfinished last line as noise. Call it at the end of output."""
        self.noise.add(bytes(self._open))
        self._open.clear()
        self._searched = 0


def parse_message(text: bytes) -> Message:
    """Return the message in one marked line, after a check of its type and size. Raises Misunderstood, also for JSON
    that is nested too deeply to parse."""
    try:
        message = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise Misunderstood(f"not JSON: {type(error).__name__}") from error
    if not isinstance(message, dict) or message.get("type") not in TYPES:
        raise Misunderstood("not a message of the protocol")
    if message["type"] in ("hello", "ready") and len(text) > FACTS_LIMIT_BYTES:
        raise Misunderstood(f"{message['type']} is longer than 1 MiB")
    return message


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    """Return the number. Raises ValueError for a number such as 1e999, which is valid JSON but infinite in Python."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


def number_of(message: Message, name: str) -> float | None:
    """Return the number in a field; None if the field is null or missing."""
    value = message.get(name)
    if value is None:
        return None
    if type(value) not in (int, float):
        raise Misunderstood(f"{message.get('type')}: {name} is not a number")
    if not abs(value) <= NUMBER_LIMIT:
        raise Misunderstood(f"{message.get('type')}: {name} is out of range")
    return float(value)


def count_of(message: Message, name: str, *, most: float) -> int:
    """Return the whole number from 0 to `most` in a field; 0 if the field is null or missing."""
    value = message.get(name, 0)
    if value is None:
        return 0
    most = min(most, COUNT_LIMIT)
    if type(value) is not int or not 0 <= value <= most:
        raise Misunderstood(f"{message.get('type')}: {name} is not a whole number from 0 to {most:g}")
    return value


def whole_number_of(message: Message, name: str) -> int | None:
    """Return the whole number below 2**32 in magnitude in a field; None if the field is null or missing."""
    value = message.get(name)
    if value is not None and (type(value) is not int or abs(value) >= 1 << 32):
        raise Misunderstood(f"{message.get('type')}: {name} is not a whole number")
    return value


def text_of(message: Message, name: str) -> str:
    """Return the last 65,536 characters of the text in a field; "" if the field is null or missing."""
    return "" if message.get(name) is None else long_text_of(message, name)[-TEXT_LIMIT:]


def long_text_of(message: Message, name: str) -> str:
    """Return the whole text in a field, which is required."""
    value = message.get(name)
    if not isinstance(value, str):
        raise Misunderstood(f"{message.get('type')}: {name} is not a text")
    return writable(value)


def writable(text: str) -> str:
    """Replace lone surrogates: json accepts them, but no file or terminal does."""
    return text.encode(errors="replace").decode()


def columns_of(message: Message) -> dict[str, Floats]:
    """Return the columns of a `samples` or `counts` message by name, including `step`: arrays of the same length.

    Nulls and values beyond NUMBER_LIMIT (a diverging loss) become NaN.
    """
    kind, columns = str(message.get("type")), message.get("columns")
    if not isinstance(columns, dict) or "step" not in columns or len(columns) > MOST_COLUMNS:
        raise Misunderstood(f"{kind}: no columns, too many, or none named step")
    arrays = {sys.intern(writable(str(name)[:200])): _array(kind, values) for name, values in columns.items()}
    if len({len(array) for array in arrays.values()}) != 1:
        raise Misunderstood(f"{kind}: columns of different lengths")
    if not np.all(np.isfinite(arrays["step"])):
        raise Misunderstood(f"{kind}: a step is not a number")
    return arrays


def _array(kind: str, values: object) -> Floats:
    # numpy would convert strings and booleans to numbers.
    if not isinstance(values, list) or not all(v is None or type(v) in (int, float) for v in values):
        raise Misunderstood(f"{kind}: a value is not a number")
    try:
        array = np.array(values, dtype=np.float64)
    except OverflowError as error:
        raise Misunderstood(f"{kind}: a number is out of range") from error
    array[np.abs(array) > NUMBER_LIMIT] = np.nan
    return array


def not_finite_of(message: Message) -> dict[str, tuple[int, int]]:
    """Return the non-finite values that `done` reports, by metric: (number of steps that returned one, the first such
    step)."""
    metrics = message.get("not_finite") or {}
    if not isinstance(metrics, dict) or len(metrics) > METRICS_LIMIT:
        raise Misunderstood("done: not_finite is not an object with a field for each metric")
    return {writable(name[:200]): _pair(pair) for name, pair in metrics.items()}


def _pair(pair: object) -> tuple[int, int]:
    if not isinstance(pair, list) or len(pair) != 2 or not all(type(n) is int and 0 < n <= COUNT_LIMIT for n in pair):
        raise Misunderstood("done: a value of not_finite is not a count and a step")
    return pair[0], pair[1]


def look_of(message: Message, *, allowed: tuple[int, ...], any_step: bool = False) -> Look:
    """Return the look in a `look` message; unknown fields are ignored. `allowed`: the steps at which looks are due.

    The last look may be at any step, because the time limit may end the trial between two looks. `any_step` allows any
    step for all looks: it is for trials whose looks are due by time.
    """
    step = count_of(message, "step", most=allowed[-1])
    fields = message.get("look")
    is_due = any_step or step in allowed or message.get("last") is True
    if not is_due or not isinstance(fields, dict):
        raise Misunderstood(f"look: none is due at step {step}, or it has no fields")
    figures = {name: number_of(fields, name) for name in LOOK_COLUMNS}
    return Look(step=step, values={name: value for name, value in figures.items() if value is not None})


# ---------------------------------------------------------------- samples and looks of a trial


COUNTS_LIMIT = 10_000  # the agent sends at most 256 rows and one for each look
COUNTED = ("step", *GROWTHS, "sockets", "pipes")


class Samples:
    """Collects chunks of rows as they arrive. Chunks are joined so that each is more than twice as long as the next:
    rows that arrive one by one then take hardly more memory than rows that arrive together.
    """

    def __init__(self, *, last_step: float) -> None:
        """Start without rows. `last_step` is the largest step that a sample may have."""
        self._chunks: list[dict[str, Floats]] = []
        self._looks: list[Look] = []
        self._counts: dict[str, Floats] = {}
        self._names: set[str] = set()
        self._rows = 0
        self._newest = 0.0
        self._last_step = last_step

    def add(self, columns: dict[str, Floats]) -> None:
        """Add rows. Raises Misunderstood if their steps do not follow the earlier ones, or if there are too many."""
        step = columns["step"]
        if not len(step):
            return
        if step[0] < self._newest or step[-1] > self._last_step or np.any(np.diff(step) < 0):
            raise Misunderstood("samples: steps out of order or beyond the last one")
        self._names.update(columns)
        self._rows += len(step)
        if problem := beyond_any_trace(rows=self._rows, columns=len(self._names)):
            raise Misunderstood(f"samples: {problem}")
        self._newest = float(step[-1])
        self._chunks.append(columns)
        while len(self._chunks) > 1 and _rows(self._chunks[-2]) <= 2 * _rows(self._chunks[-1]):
            self._chunks[-2:] = [_joined(self._chunks[-2:])]

    def set_counts(self, columns: dict[str, Floats]) -> None:
        """Replace all counts by `columns`, which hold all rows so far; unknown columns are ignored.

        Raises Misunderstood.
        """
        step = columns["step"]
        if len(step) > COUNTS_LIMIT or np.any(step > self._last_step) or np.any(np.diff(step) <= 0):
            raise Misunderstood("counts: too many rows, or steps out of order or beyond the last one")
        self._counts = {name: columns[name] for name in COUNTED if name in columns}
        if any(np.any(values < 0) for values in self._counts.values()):
            raise Misunderstood("counts: a count is negative")

    def add_look(self, look: Look) -> None:
        """Add a look. Looks are added in the order of their steps."""
        self._looks.append(look)

    @property
    def looks(self) -> int:
        """Return the number of looks so far."""
        return len(self._looks)

    @property
    def newest_step(self) -> int:
        """Return the step of the newest sample; 0 before the first."""
        return int(self._newest)

    def trace(self) -> Trace | None:
        """Return all samples so far; None before the first. A column is NaN in rows of chunks that lack it."""
        if not self._chunks:
            return None
        joined = _joined(self._chunks)
        self._chunks = [joined]
        columns = {name: values for name, values in joined.items() if name != "step"}
        return Trace(step=joined["step"], columns=columns, looks=tuple(self._looks), counts=self._counts)


def _rows(chunk: dict[str, Floats]) -> int:
    return len(chunk["step"])


def _joined(chunks: list[dict[str, Floats]]) -> dict[str, Floats]:
    names = dict.fromkeys(name for chunk in chunks for name in chunk)
    return {
        name: np.concatenate([chunk[name] if name in chunk else np.full(_rows(chunk), np.nan) for chunk in chunks])
        for name in names
    }


# ---------------------------------------------------------------- image facts


def facts_of(message: Message) -> dict[str, Any]:
    """Return the fields of `hello` or `ready`: texts, numbers, booleans, flat lists and dicts of these, and lists of
    flat dicts (one for each GPU).

    A field in KINDS has the type given there or is None, so that readers need not check it. The values of variables
    that look like a credential (NVIDIA_API_KEY) are masked here, before anything is written. Raises Misunderstood.
    """
    facts: dict[str, Any] = {
        sys.intern(writable(name)): _facts(value) for name, value in message.items() if name != "type"
    }
    for name, fits in KINDS.items():
        if facts.get(name) is not None and not fits(facts[name]):
            raise Misunderstood(f"{message.get('type')}: {name} does not have the type that the agent sends")
    if facts.get("environment"):
        facts["environment"] = told(facts["environment"].items())
    return facts


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_measure(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _list_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _record_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(inner is None or fits(inner) for inner in value.values())


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _is_gpu(value: object) -> bool:
    return isinstance(value, dict) and all(
        value.get(name) is None or fits(value[name]) for name, fits in GPU_KINDS.items()
    )


GPU_KINDS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("uuid", "name", "compute_capability", "driver", "cuda", "parent"), _is_text),
    **dict.fromkeys(("index", "memory_mib", "power_limit_w", "processes"), _is_measure),
    **dict.fromkeys(("ecc", "mig"), lambda value: isinstance(value, bool)),
}
KINDS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("agent", "python", "implementation", "libc", "cpu", "huge_pages", "gpu_problem"), _is_text),
    **dict.fromkeys(("protocol", "page_kib", "setup_s", "first_step_s", "stride"), _is_measure),
    **dict.fromkeys(("environment_names", "libraries", "probes"), _list_of(_is_text)),
    **dict.fromkeys(("packages", "wheels", "rlimits"), _record_of(_is_text)),
    "environment": _is_environment,
    "cgroup": _record_of(_is_measure),
    "gpus": _list_of(_is_gpu),
}
"""The types of the fields of `hello` and `ready`, as `harness/agent/__init__.py` describes them."""


def _facts(value: object) -> object:
    if isinstance(value, dict):
        return _record(value)
    if isinstance(value, list):
        return [_record(inner) if isinstance(inner, dict) else _fact(inner) for inner in value]
    return _fact(value)


def _record(value: dict[str, object]) -> dict[str, Any]:
    return {sys.intern(writable(name)): _fact(inner) for name, inner in value.items()}


def _fact(value: object) -> Any:
    if isinstance(value, str):
        return writable(value)
    if value is None or isinstance(value, bool) or (isinstance(value, (int, float)) and abs(value) <= NUMBER_LIMIT):
        return value
    raise Misunderstood("a fact is neither a text, a number, a boolean nor a flat list of these")
