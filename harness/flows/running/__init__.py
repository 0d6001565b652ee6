"""Runs a plan: its rows, on their machines."""
