"""Finds changepoints: where the level of a figure changes along a series of versions."""
