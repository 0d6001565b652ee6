"""Reads the `scenarios:` of a matrix file: scripts, programs and commands, checked without running them."""
