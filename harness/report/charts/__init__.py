"""Draws the charts of the HTML page and of bug reports from shared definitions."""
