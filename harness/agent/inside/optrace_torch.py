"""Reads operations from torch's profiler."""

from .optrace import Event

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
