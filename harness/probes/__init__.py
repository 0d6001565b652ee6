"""Interprets the files of wrapping probes, and searches for the largest size that fits. Pure."""

from harness.probes.files import Unreadable, read_lines, read_ops
from harness.probes.frontier import frontier_settings
from harness.probes.largest import search_largest
from harness.probes.leaks import read_leaks
from harness.probes.oom import read_oom

__all__ = ["Unreadable", "frontier_settings", "read_leaks", "read_lines", "read_oom", "read_ops", "search_largest"]
