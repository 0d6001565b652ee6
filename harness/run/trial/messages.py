"""Reads the agent's messages from the output of an image, which is not trusted.

`MessageLines` finds the marked lines, and `parse_message` makes one of the records below from each; they raise only
`Misunderstood`. `Samples` joins the rows of the messages to a trace.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NoReturn

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from harness.agent.ending import MOST_OUTLIVING
from harness.masking import told, without_known
from harness.model import GROWTHS, End, Floats, Look, Remedy, Shortfall, Trace
from harness.model.measured import (
    LOOK_COLUMNS,
    MOST_COLUMNS,
    MOST_METRICS,
    OVER_TIME,
    SeenCgroup,
    SeenGpu,
    beyond_any_trace,
)
from harness.run.interruptible import BoundedTail

LINE_LIMIT_BYTES = 16 << 20
FACTS_LIMIT_BYTES = 1 << 20
TEXT_LIMIT = 64 << 10
HEAD_LIMIT = 16 << 10
BUFFERED_LIMIT = 500
RANKS_LIMIT = 64
NUMBER_LIMIT = 1e30
"""Largest magnitude of a measurement; products of larger numbers may overflow."""
COUNT_LIMIT = 1 << 53
CODE_LIMIT = (1 << 32) - 1
COUNTS_LIMIT = 10_000  # the agent sends at most 256 rows and one for each look
SLICES_LIMIT = 1 << 18
COUNTED = ("step", *GROWTHS, "sockets", "pipes", "worker_memory_kept")
LONE_SURROGATE = re.compile(rb"\\u[dD]")
"""May begin half of a character, which JSON accepts, but no file or terminal does."""


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


# ---------------------------------------------------------------- fields


def _columns(fields: object, along: str = "step") -> dict[str, Floats]:
    """Return columns of one length by name, with `along`. Nulls and values beyond NUMBER_LIMIT become NaN."""
    if not isinstance(fields, dict) or along not in fields or len(fields) > MOST_COLUMNS:
        raise ValueError(f"no columns, too many, or none named {along}")
    arrays: dict[str, Floats] = {}
    for name, values in fields.items():
        # numpy would convert strings and booleans to numbers.
        if not isinstance(values, list) or not all(v is None or type(v) in (int, float) for v in values):
            raise ValueError("a value is not a number")
        try:
            array = arrays[name[:200]] = np.array(values, dtype=np.float64)
        except OverflowError as error:
            raise ValueError("a number is out of range") from error
        array[np.abs(array) > NUMBER_LIMIT] = np.nan
    if len({len(array) for array in arrays.values()}) != 1:
        raise ValueError("columns of different lengths")
    if not np.all(np.isfinite(arrays[along])):
        raise ValueError("a step is not a number")
    return arrays


def _known_figures(fields: object) -> object:
    if not isinstance(fields, dict):
        return fields
    return {name: fields[name] for name in LOOK_COLUMNS & fields.keys() if fields[name] is not None}


Figure = Annotated[float, Field(ge=-NUMBER_LIMIT, le=NUMBER_LIMIT)]
Measure = Annotated[int | float, Field(ge=0, le=NUMBER_LIMIT)]
Count = Annotated[int, Field(ge=0, le=COUNT_LIMIT)]
Code = Annotated[int, Field(ge=-CODE_LIMIT, le=CODE_LIMIT)]
Told = Annotated[str, AfterValidator(lambda text: text[-TEXT_LIMIT:])]
Short = Annotated[str, AfterValidator(lambda text: text[:200])]
Columns = Annotated[dict[str, Any], PlainValidator(_columns)]
Figures = Annotated[dict[str, Figure], BeforeValidator(_known_figures)]
Stepped = Annotated[
    tuple[Annotated[int, Field(gt=0, le=COUNT_LIMIT)], Annotated[int, Field(gt=0, le=COUNT_LIMIT)]],
    Field(strict=False),
]
"""The number of steps that returned a value that is not finite, and the first of them."""


# ---------------------------------------------------------------- messages


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Message(_Strict):
    """A message, as `harness/agent/__init__.py` describes it. A field that is null counts as missing."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if value is not None}


class _Gpu(_Strict):
    uuid: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    driver: str | None = None
    cuda: str | None = None
    parent: str | None = None
    index: Measure | None = None
    memory_mib: Measure | None = None
    power_limit_w: Measure | None = None
    processes: Measure | None = None
    ecc: bool | None = None
    mig: bool | None = None


class _Cgroup(_Strict):
    version: int | None = None
    limit_bytes: Measure | None = None


class Hello(_Strict):
    """The facts of `hello`, and of `ready`; others are ignored."""

    agent: str | None = None
    python: str | None = None
    implementation: str | None = None
    libc: str | None = None
    cpu: str | None = None
    huge_pages: str | None = None
    step_kind: str | None = None
    step_shape: str | None = None
    gpu_problem: str | None = None
    protocol: Measure | None = None
    page_kib: Measure | None = None
    own_s: Measure | None = None
    setup_s: Measure | None = None
    first_step_s: Measure | None = None
    stride: Measure | None = None
    environment_names: list[str] | None = None
    libraries: list[str] | None = None
    probes: list[str] | None = None
    packages: dict[str, str | None] | None = None
    wheels: dict[str, str | None] | None = None
    rlimits: dict[str, str | None] | None = None
    environment: dict[str, str] | None = None
    cgroup: _Cgroup | None = None
    gpus: list[_Gpu] | None = None
    gpu_links: dict[str, str] | None = None
    mounts: dict[str, str] | None = None

    def told(self) -> dict[str, Any]:
        """Return the fields of `Facts` that were sent. The values of variables that look like a credential
        (NVIDIA_API_KEY) are masked here, before anything is written."""
        sent = {name: value for name in self.model_fields_set if (value := getattr(self, name)) is not None}
        sent.pop("mounts", None)
        if "environment" in sent:
            sent["environment"] = told(sent["environment"].items())
        if "cgroup" in sent:
            sent["cgroup"] = SeenCgroup(**dict(sent["cgroup"]))
        if "gpus" in sent:
            sent["gpus"] = tuple(SeenGpu(**dict(gpu)) for gpu in sent["gpus"])
        lists = {name: tuple(value) for name, value in sent.items() if isinstance(value, list)}
        return {**sent, **lists, "told_steps": "step_shape" in self.model_fields_set}


class Ready(Hello):
    pass


class Progress(Message):
    step: Count = 0
    rss_kib: Figure | None = None
    note: str = ""


class Rows(Message):
    columns: Columns


class Counts(Message):
    columns: Columns


class OverTime(Message):
    columns: Annotated[dict[str, Any], PlainValidator(functools.partial(_columns, along="at_s"))]


class LookTaken(Message):
    step: Count = 0
    look: Figures
    last: bool = False


class Parked(Message):
    step: Count = 0
    frozen: bool = False


class Rank(_Strict):
    rank: Count
    steps: Count
    step_s: Measure | None = None
    own_s: Measure | None = None
    grown_kib: Figure | None = None
    about: Annotated[dict[Short, Short], Field(max_length=16)] = {}
    not_finite: Annotated[list[Short], Field(max_length=16)] = []


class MountSeen(_Strict):
    """A mount that an agent described."""

    at: str
    kind: Short = ""
    entries: Count = 0
    bytes: Count = 0
    files: Short = ""
    inodes: Short = ""
    content: Short = ""
    problem: Annotated[str, AfterValidator(lambda text: text[:500])] = ""


class Mounted(Message):
    text: Short = ""
    mounts: list[MountSeen] | None = None


class FilePart(Message):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9.-]{0,63}$")]
    text: str


class Done(Message):
    end: End
    message: Told = ""
    signal: Code | None = None
    exit_code: Code | None = None
    last_step: Count = 0
    run_s: Measure | None = None
    end_s: Measure | None = None
    busy_s: Measure | None = None
    kept_waiting: Measure | None = None
    outlived_by: Annotated[list[Short], Field(max_length=MOST_OUTLIVING)] | None = None
    peak_rss_kib: Figure | None = None
    probe_cost: Figure | None = None
    at_exit: bool = False
    starved: bool = False
    failed_ago_s: Measure | None = None
    oom_in_setup: bool = False
    shortfall: Shortfall = ""
    remedy: Remedy = ""
    output_head: Annotated[str, AfterValidator(lambda text: text[:HEAD_LIMIT])] = ""
    output_middle: Annotated[str, AfterValidator(lambda text: text[:HEAD_LIMIT])] = ""
    output_tail: Told = ""
    output_bytes: Count | None = None
    unread: Told = ""
    not_finite: Annotated[dict[Short, Stepped], Field(max_length=MOST_METRICS)] = {}
    buffered: Annotated[str, AfterValidator(lambda text: text[:BUFFERED_LIMIT])] = ""
    ranks: Annotated[list[Rank], Field(max_length=RANKS_LIMIT)] = []
    stacks: Told = ""


MESSAGES: Mapping[str, type[BaseModel]] = {
    "hello": Hello, "ready": Ready, "progress": Progress, "samples": Rows, "counts": Counts, "over_time": OverTime,
    "look": LookTaken, "parked": Parked, "mounted": Mounted, "file": FilePart, "done": Done,
}  # fmt: skip


def parse_message(text: bytes) -> BaseModel:
    """Return the message in one marked line. Raises Misunderstood, also for JSON that is nested too deeply to parse."""
    text = without_known(text)  # such as an argument that the program prints
    try:
        fields = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if LONE_SURROGATE.search(text):
            fields = json.loads(json.dumps(fields, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise Misunderstood(f"not JSON: {type(error).__name__}") from error
    kind = fields.get("type") if isinstance(fields, dict) else None
    if not isinstance(kind, str) or kind not in MESSAGES:
        raise Misunderstood("not a message of the protocol")
    if kind in ("hello", "ready") and len(text) > FACTS_LIMIT_BYTES:
        raise Misunderstood(f"{kind} is longer than 1 MiB")
    try:
        return MESSAGES[kind].model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = first["loc"][0] if first["loc"] and first["loc"][0] in MESSAGES[kind].model_fields else "a field"
        raise Misunderstood(f"{kind}: {name}: {first['msg'].removeprefix('Value error, ')[:200]}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    """Return the number. Raises ValueError for a number such as 1e999, which is valid JSON but infinite in Python."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


# ---------------------------------------------------------------- samples and looks of a trial


class Samples:
    """Collects chunks of rows as they arrive. Chunks are joined so that each is more than twice as long as the next:
    rows that arrive one by one then take hardly more memory than rows that arrive together. `last_step`: the largest
    step that a sample may have. All methods that add raise Misunderstood."""

    def __init__(self, *, last_step: float) -> None:
        self._chunks: list[dict[str, Floats]] = []
        self._counts: dict[str, Floats] = {}
        self._over_time: dict[str, Floats] = {}
        self._names: set[str] = set()
        self._rows = 0
        self._last_step = last_step
        self._slices: list[tuple[int, int]] = []
        self.looks: list[Look] = []
        self.newest_step = 0.0
        """The step of the newest sample; 0 before the first."""

    def add(self, columns: dict[str, Floats]) -> None:
        """Add rows, whose steps must follow the earlier ones."""
        step = columns["step"]
        if not len(step):
            return
        if step[0] < self.newest_step or step[-1] > self._last_step or np.any(np.diff(step) < 0):
            raise Misunderstood("samples: steps out of order or beyond the last one")
        self._names.update(columns)
        self._rows += len(step)
        if problem := beyond_any_trace(rows=self._rows, columns=len(self._names)):
            raise Misunderstood(f"samples: {problem}")
        self.newest_step = float(step[-1])
        self._chunks.append(columns)
        while len(self._chunks) > 1 and len(self._chunks[-2]["step"]) <= 2 * len(self._chunks[-1]["step"]):
            self._chunks[-2:] = [_joined(self._chunks[-2:])]

    def set_counts(self, columns: dict[str, Floats]) -> None:
        """Replace all counts by `columns`, which hold all rows so far; unknown columns are ignored."""
        step = columns["step"]
        if len(step) > COUNTS_LIMIT or np.any(step > self._last_step) or np.any(np.diff(step) <= 0):
            raise Misunderstood("counts: too many rows, or steps out of order or beyond the last one")
        self._counts = {name: columns[name] for name in COUNTED if name in columns}
        if any(map(_is_negative, self._counts.values())):
            raise Misunderstood("counts: a count is negative")

    def set_over_time(self, columns: dict[str, Floats]) -> None:
        """Keep the memory over time; unknown columns are ignored."""
        own = {name: columns[name] for name in OVER_TIME if name in columns}
        if len(own["at_s"]) > COUNTS_LIMIT or np.any(np.diff(own["at_s"]) <= 0) or any(map(_is_negative, own.values())):
            raise Misunderstood("over_time: too many rows, times out of order, or a negative number")
        self._over_time = own

    def begin_slice(self, cycle: int, step: int) -> None:
        """Note that the steps after `step` are those of the slice in `cycle`."""
        if step > self._last_step or (self._slices and step < self._slices[-1][0]):
            raise Misunderstood("parked: steps out of order or beyond the last one")
        if len(self._slices) >= SLICES_LIMIT:
            raise Misunderstood("parked: too many slices")
        self._slices.append((step, cycle))

    def forget_slices(self) -> None:
        self._slices = []

    def trace(self) -> Trace | None:
        """Return all samples so far; None before the first. A column is NaN in rows of chunks that lack it, and the
        step times are NaN where a slice begins: caches have to fill again."""
        if not self._chunks:
            return None
        joined = _joined(self._chunks)
        self._chunks = [joined]
        columns = {name: values for name, values in joined.items() if name != "step"}
        if self._slices:
            columns |= _in_slices(joined["step"], columns.get("step_s"), self._slices)
        return Trace(
            step=joined["step"],
            columns=columns,
            looks=tuple(self.looks),
            counts=self._counts,
            over_time=self._over_time,
        )


def _is_negative(values: Floats) -> bool:
    return bool(np.any(values < 0))


UNSETTLED = 0.3
"""Share of the rows of a slice, at its beginning, whose step times are left out; it is at least one row. Memory-bound
steps take 60 % longer in the first 6 ms and 1 % longer after 20 ms (`benchmarks/paired_slices.py`)."""


def _in_slices(step: Floats, step_s: Floats | None, slices: list[tuple[int, int]]) -> dict[str, Floats]:
    """Return the column of slices, and step times without each one's beginning. `slices`: (step before it, cycle)."""
    before, cycles = np.array(slices, dtype=np.float64).T
    place = np.maximum(np.searchsorted(before, step) - 1, 0)
    columns = {"slice": np.where(step > before[0], cycles[place], np.nan)}
    if step_s is not None:
        first = np.searchsorted(step, before, side="right")
        rows = np.diff([*first, len(step)])
        is_new = np.arange(len(step)) - first[place] < np.maximum(1, UNSETTLED * rows[place])
        columns["step_s"] = np.where(is_new & (step > before[0]), np.nan, step_s)
    return columns


def _joined(chunks: list[dict[str, Floats]]) -> dict[str, Floats]:
    names = dict.fromkeys(name for chunk in chunks for name in chunk)
    missing = [np.full(len(chunk["step"]), np.nan) for chunk in chunks]
    return {
        name: np.concatenate([chunk.get(name, gap) for chunk, gap in zip(chunks, missing, strict=True)])
        for name in names
    }
