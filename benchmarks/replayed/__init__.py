"""Measured histories, replayed without an engine: `benchmarks.time_to_answer` counts their launches and seconds."""
