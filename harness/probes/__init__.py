"""Interpretation of the files of wrapping probes, and the search for the largest size. Pure."""

from harness.probes.files import Unreadable, lines, ops
from harness.probes.frontier import settings
from harness.probes.largest import search_largest
from harness.probes.leaks import leaks
from harness.probes.oom import read_oom

__all__ = ["Unreadable", "leaks", "lines", "ops", "read_oom", "search_largest", "settings"]
