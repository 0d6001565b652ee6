"""Writes all reports. Every report is a pure function of its input, usually a RunResult."""
