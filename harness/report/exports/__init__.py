"""Writes the report as files for other programs: JSON, CSV, JUnit, Markdown."""
