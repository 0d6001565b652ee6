"""Writes the text of a matrix file for a command line, as `harness init` and `harness try` need it."""
