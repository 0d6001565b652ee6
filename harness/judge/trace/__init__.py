"""Judges one trace: growth of its memory and counts, and drift of its step time."""
