"""Measured histories, replayed without an engine: what `benchmarks.time_to_answer` counts launches and seconds on."""
