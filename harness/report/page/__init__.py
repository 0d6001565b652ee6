"""Writes the report as a single, self-contained HTML page."""
