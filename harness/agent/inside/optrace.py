"""Traces operations: the duration of each at early and at late steps, and a Chrome trace of both.

    {"at": [10, 120], "repeat": 5}      traces five steps starting at each of these, and takes medians over the five

The operations come from the scenario's own `trace_step()` (makes one step and returns [(op, start_s, duration_s)]),
else from TensorFlow (graph mode by RunMetadata of every Session.run, eager mode by the eager context), else from torch.
Tracing itself costs time and memory, so a traced trial measures neither.
"""

import collections
import inspect
import json
import math
import sys

from .. import failure
from ..wrapping import ProbeError, call

Event = collections.namedtuple("Event", "op kind place start_us took_us bytes")
Event.__doc__ = """One run of an operation: its name, its kind (MatMul), the device or thread, when it ran, and the size
of its output in bytes (0: not known)."""


class OpTrace(object):
    """Traces `repeat` steps, beginning at each of the steps `at`."""

    def __init__(self, module, step, params, at=(10, 120), repeat=5):
        self._tracer = find_tracer(module, step)
        self._expected = expected_bytes(module, params)
        self._at = [int(number) for number in at]
        self._repeat = int(repeat)
        self._traced = {}  # step -> events

    def wrap(self, step):
        """Return a step that is traced at the chosen steps."""
        wanted = {first + offset for first in self._at for offset in range(self._repeat)}
        made = 0

        def traced_or_plain():
            nonlocal made
            made += 1
            if made not in wanted:
                return step()
            result, self._traced[made] = self._tracer(step)
            return result

        return traced_or_plain

    def files(self):
        """Return {file name: text}: the table of operations, and a Chrome trace of the first step of each group."""
        groups = [[self._traced[n] for n in self._steps_of(first) if n in self._traced] for first in self._at]
        found = {"at": self._at, "repeat": self._repeat, "ops": op_table(groups), "expected_bytes": self._expected}
        files = {"optrace.json": json.dumps(found)}
        for first in self._at:
            if first in self._traced:
                files["step-%d.trace.json" % first] = json.dumps(chrome_trace(self._traced[first]))
        return files

    def _steps_of(self, first):
        return range(first, first + self._repeat)


def expected_bytes(module, params):
    """Return {op: bytes}: the sizes of outputs that the scenario's `expected_bytes()` predicts, if it has one."""
    predict = getattr(module, "expected_bytes", None)
    if predict is None:
        return {}
    sizes = call(predict, "optrace: expected_bytes", **params)
    try:
        return {str(op): int(size) for op, size in sizes.items()}
    except (AttributeError, OverflowError, TypeError, ValueError):
        text = "optrace: expected_bytes() must return {op: bytes}, but returned %.80r" % (sizes,)
        raise ProbeError(text + failure.line_of(predict)) from None


# ---------------------------------------------------------------- the table


def op_table(groups):
    """Return rows {op, kind, ms: [median of each group or null], bytes}, one for each op of any group.

    `groups`: for each group of steps, the list of events of each step. The durations of an op that ran several times
    in a step are added up; an op that a step did not run counts as 0 there.
    """
    kinds, sizes = {}, {}
    for event in (event for group in groups for events in group for event in events):
        kinds[event.op] = event.kind
        sizes[event.op] = max(sizes.get(event.op, 0), event.bytes)
    sums = [[_sums_us(events) for events in group] for group in groups]
    return [
        {"op": op, "kind": kinds[op], "bytes": sizes[op], "ms": [_median_ms(group, op) for group in sums]}
        for op in sorted(kinds)
    ]


def _sums_us(events):
    sums = collections.Counter()
    for event in events:
        sums[event.op] += event.took_us
    return sums


def _median_ms(steps, op):
    values = sorted(step[op] for step in steps)
    if not values:
        return None
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2e3


# ---------------------------------------------------------------- Chrome's trace format, for Perfetto


def chrome_trace(events):
    """Return complete events, one process per device; overlapping events of a device are put on several lines."""
    places = sorted({event.place for event in events})
    rows = [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": place}}
        for number, place in enumerate(places)
    ]
    free_us = {place: [] for place in places}
    origin_us = min((event.start_us for event in events), default=0)
    for event in sorted(events, key=lambda event: (event.start_us, -event.took_us)):
        rows.append({
            "ph": "X", "cat": "op", "name": event.kind, "pid": places.index(event.place),
            "tid": _line(free_us[event.place], event),
            "ts": event.start_us - origin_us, "dur": event.took_us, "args": {"op": event.op, "bytes": event.bytes},
        })  # fmt: skip
    return {"traceEvents": rows, "displayTimeUnit": "ms"}


def _line(free_us, event):
    """Return the first line that is free when the event begins; `free_us` holds the time at which each becomes free."""
    for number, until_us in enumerate(free_us):
        if until_us <= event.start_us:
            free_us[number] = event.start_us + event.took_us
            return number
    free_us.append(event.start_us + event.took_us)
    return len(free_us) - 1


# ---------------------------------------------------------------- sources of operations


def find_tracer(module, step):
    """Return a function that runs a step and returns (its result, its events). Raises ProbeError."""
    if hasattr(module, "trace_step"):
        return _own_tracer(module.trace_step)
    if "tensorflow" in sys.modules:
        from . import optrace_tensorflow

        return optrace_tensorflow.tracer(sys.modules["tensorflow"])
    if "torch" in sys.modules:
        from . import optrace_torch

        return optrace_torch.tracer(sys.modules["torch"])
    raise ProbeError(
        "optrace: setup imported neither tensorflow nor torch, and the script has no trace_step(); "
        "let trace_step() make one step and return [(op, start_s, duration_s), ...]"
    )


def _own_tracer(trace_step):
    def trace(_):
        rows = call(trace_step, "optrace: trace_step")
        if inspect.isgenerator(rows):
            rows = list(rows)
        try:
            return None, [_own_event(*row) for row in rows]
        except (TypeError, ValueError):
            text = "optrace: trace_step() must return [(op, start_s, duration_s), ...], but returned %.80r" % (rows,)
            raise ProbeError(text + failure.line_of(trace_step)) from None

    return trace


def _own_event(op, start_s, took_s):
    """Return one event of the scenario's own trace. Raises TypeError and ValueError, also for invalid times."""
    start_us, took_us = float(start_s * 1e6), float(took_s * 1e6)
    if not math.isfinite(start_us) or not 0 <= took_us < math.inf:
        raise ValueError(start_s, took_s)
    return Event(str(op), str(op), "scenario", start_us, took_us, 0)


# ---------------------------------------------------------------- optrace torch


NOT_OPS = ("[memory]",)  # an allocation outside of any operation


def tracer(torch):
    """Return a function that runs a step and returns (its result, its events)."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)

    def trace(step):
        with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
            result = step()
        return result, [_event(event) for event in profiler.events() if event.name not in NOT_OPS]

    return trace


def _event(event):
    span = event.time_range
    size = max(0, getattr(event, "cpu_memory_usage", 0) or 0)
    return Event(event.name, event.name, str(event.device_type), span.start, span.end - span.start, int(size))
