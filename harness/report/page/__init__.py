"""Writes the report as one self-contained HTML page."""
