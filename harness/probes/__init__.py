"""Interprets the files and messages of probes, and searches for the largest size that fits. Pure functions."""
