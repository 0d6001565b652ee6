"""Reads traces and histories from files, for `harness judge`."""

from harness.traces.histories import HistoryFile, read_history
from harness.traces.trace_files import read_trace
