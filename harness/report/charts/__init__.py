"""Draws the charts of the page and of bug reports, each defined once."""
