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

from ..ending import ProbeError, call, line_of

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
        chosen = [range(first, first + self._repeat) for first in self._at]
        groups = [[self._traced[number] for number in some if number in self._traced] for some in chosen]
        found = {"at": self._at, "repeat": self._repeat, "ops": op_table(groups), "expected_bytes": self._expected}
        files = {"optrace.json": json.dumps(found)}
        for first in self._at:
            if first in self._traced:
                files["step-%d.trace.json" % first] = json.dumps(chrome_trace(self._traced[first]))
        return files


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
        raise ProbeError(text + line_of(predict)) from None


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
        tf = sys.modules["tensorflow"]
        return _eager_tracer() if tf.executing_eagerly() else _graph_tracer(tf)
    if "torch" in sys.modules:
        return torch_tracer(sys.modules["torch"])
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
            raise ProbeError(text + line_of(trace_step)) from None

    return trace


def _own_event(op, start_s, took_s):
    """Return one event of the scenario's own trace. Raises TypeError and ValueError, also for invalid times."""
    start_us, took_us = float(start_s * 1e6), float(took_s * 1e6)
    if not math.isfinite(start_us) or not 0 <= took_us < math.inf:
        raise ValueError(start_s, took_s)
    return Event(str(op), str(op), "scenario", start_us, took_us, 0)


# ---------------------------------------------------------------- torch


NOT_OPS = ("[memory]",)  # an allocation outside of any operation


def torch_tracer(torch):
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


# ---------------------------------------------------------------- TensorFlow 1.15 and 2, by its step stats


NOT_TF_OPS = ("RecvTensor", "_SOURCE", "_SINK", "unknown")
COPIES = (":stream", "/stream:", "memcpy", "/host:cpu")  # duplicates, recorded for streams and CUDA's host


def _graph_tracer(tf):
    """Make every Session.run within a traced step also request RunMetadata."""
    from tensorflow.python.client.session import BaseSession

    plain_run = BaseSession.run
    events = []  # of the traced step
    tracing = False

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        if not tracing or run_metadata is not None:
            return plain_run(self, fetches, feed_dict, options, run_metadata)
        traced = tf.compat.v1.RunOptions()
        if options is not None:
            traced.CopyFrom(options)
        traced.trace_level = tf.compat.v1.RunOptions.FULL_TRACE
        metadata = tf.compat.v1.RunMetadata()
        result = plain_run(self, fetches, feed_dict, traced, metadata)
        events.extend(events_of(metadata.step_stats))
        return result

    BaseSession.run = run

    def trace(step):
        nonlocal tracing
        del events[:]
        tracing = True
        try:
            result = step()
        finally:
            tracing = False
        return result, list(events)

    return trace


def _eager_tracer():
    from tensorflow.python.eager import context

    if not hasattr(context, "enable_run_metadata"):
        raise ProbeError("optrace: this TensorFlow has no run metadata in eager mode; trace a scenario in graph mode")

    def trace(step):
        context.enable_run_metadata()
        try:
            result = step()
            metadata = context.export_run_metadata()
        finally:
            context.disable_run_metadata()
        return result, events_of(metadata.step_stats)

    return trace


def events_of(step_stats):
    """Return the events of a StepStats message; for a GPU, those of the device and not those of its streams."""
    return [
        _node_event(device.device, node)
        for device in step_stats.dev_stats
        if not any(mark in device.device.lower() for mark in COPIES)
        for node in device.node_stats
        if node.node_name not in NOT_TF_OPS
    ]


def _node_event(place, node):
    sizes = [output.tensor_description.allocation_description.requested_bytes for output in node.output]
    return Event(
        node.node_name,
        _kind(node),
        place,
        node.all_start_micros,
        max(node.all_end_rel_micros, node.op_end_rel_micros),
        int(max(sizes, default=0)),
    )


def _kind(node):
    """Return the kind of a node, which TensorFlow labels `name = Kind(inputs)`; in eager mode the name is the kind."""
    label = node.timeline_label
    return label.split(" = ", 1)[1].split("(", 1)[0] if " = " in label else node.node_name.split(":")[0]
