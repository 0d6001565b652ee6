"""Finds the versions of one series at which something changed."""
