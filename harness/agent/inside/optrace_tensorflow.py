"""Reads operations from the step stats of TensorFlow 1.15 and 2.x, in graph and eager mode."""

from ..wrapping import ProbeError
from .optrace import Event

NOT_OPS = ("RecvTensor", "_SOURCE", "_SINK", "unknown")
COPIES = (":stream", "/stream:", "memcpy", "/host:cpu")  # duplicates, recorded for streams and CUDA's host


def tracer(tf):
    """Return a function that runs a step and returns (its result, its events)."""
    return _eager_tracer() if tf.executing_eagerly() else _graph_tracer(tf)


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
        _event(device.device, node)
        for device in step_stats.dev_stats
        if not any(mark in device.device.lower() for mark in COPIES)
        for node in device.node_stats
        if node.node_name not in NOT_OPS
    ]


def _event(place, node):
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
