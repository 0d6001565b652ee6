"""Computes the content of reports, as data that each format renders."""
