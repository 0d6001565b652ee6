"""Holds what several commands share."""
