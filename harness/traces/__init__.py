"""A trace from any file, for `harness judge`."""

from harness.traces.reading import Recorded, read_trace, unheard

__all__ = ["Recorded", "read_trace", "unheard"]
