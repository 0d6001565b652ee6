"""Judges one cell: the verdict over its launches, and the verdict on each of its own signals."""
