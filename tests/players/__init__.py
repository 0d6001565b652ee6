"""Shared by tests and benchmarks: results, launches and versions whose truth is known, and engines that play a part."""
