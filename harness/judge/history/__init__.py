"""Finds at which versions of one series something changed."""
