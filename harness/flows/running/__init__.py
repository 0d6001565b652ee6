"""Runs the rows of a plan on their machines."""
