"""The op trace: the duration of each operation at early and at late steps, and a Chrome trace of each.

    {"at": [10, 120], "repeat": 5}      five traced steps from each of these on; medians over the five

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

Event = collections.namedtuple("Event", "op kind place start_us took_us bytes")
Event.__doc__ = """One operation as it ran: its name, its kind (MatMul), the device or thread, when, and its output's
bytes (0: not known)."""


class ProbeError(failure.Told):
    """The scenario cannot be probed in this way; the text says why and what to do."""


def call(function, name, **params):
    """Return what a function of the script returns. Raises ProbeError with its line if the call itself fails."""
    try:
        return function(**params)
    except TypeError as error:
        if error.__traceback__.tb_next is not None:  # raised inside the function
            raise
        raise ProbeError("%s: %s%s" % (name, error, failure.line_of(function))) from None


class OpTrace(object):
    """Traces `repeat` steps from each of the steps `at`."""

    def __init__(self, module, step, params, at=(10, 120), repeat=5):
        self._tracer = find_tracer(module, step)
        self._expected = expected_bytes(module, params)
        self._at = [int(number) for number in at]
        self._repeat = int(repeat)
        self._traced = {}  # step -> events

    def wrap(self, step):
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
        groups = [[self._traced[n] for n in self._steps_of(first) if n in self._traced] for first in self._at]
        found = {"at": self._at, "repeat": self._repeat, "ops": table(groups), "expected_bytes": self._expected}
        files = {"optrace.json": json.dumps(found)}
        for first in self._at:
            if first in self._traced:
                files["step-%d.trace.json" % first] = json.dumps(chrome_trace(self._traced[first]))
        return files

    def _steps_of(self, first):
        return range(first, first + self._repeat)


def expected_bytes(module, params):
    """Return the sizes that the scenario computes for the outputs of operations, if it does: {op: bytes}."""
    predict = getattr(module, "expected_bytes", None)
    if predict is None:
        return {}
    told = call(predict, "optrace: expected_bytes", **params)
    try:
        return {str(op): int(count) for op, count in told.items()}
    except (AttributeError, OverflowError, TypeError, ValueError):
        text = "optrace: expected_bytes() must return {op: bytes}, and returned %.80r" % (told,)
        raise ProbeError(text + failure.line_of(predict)) from None


# ---------------------------------------------------------------- the table


def table(groups):
    """Return rows {op, kind, ms: [median of each group or null], bytes}, one for each op of any group.

    For an op that ran several times in a step the sum counts; one that a step did not run counts as 0 there.
    """
    kinds, sizes = {}, {}
    for events in (events for group in groups for events in group):
        for event in events:
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
    """Return complete events, one process per device; overlapping events of a device go to further lines."""
    places = sorted({event.place for event in events})
    rows = [{"ph": "M", "name": "process_name", "pid": n, "tid": 0, "args": {"name": p}} for n, p in enumerate(places)]
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
    """Return a function step -> (its result, events). Raises ProbeError."""
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
        told = call(trace_step, "optrace: trace_step")
        if inspect.isgenerator(told):
            told = list(told)
        try:
            return None, [_own_event(*row) for row in told]
        except (TypeError, ValueError):
            text = "optrace: trace_step() must return [(op, start_s, duration_s), ...], and returned %.80r" % (told,)
            raise ProbeError(text + failure.line_of(trace_step)) from None

    return trace


def _own_event(op, start_s, took_s):
    """Return one event of the scenario's own trace. Raises TypeError and ValueError, also for invalid times."""
    start_us, took_us = float(start_s * 1e6), float(took_s * 1e6)
    if not math.isfinite(start_us) or not 0 <= took_us < math.inf:
        raise ValueError(start_s, took_s)
    return Event(str(op), str(op), "scenario", start_us, took_us, 0)
