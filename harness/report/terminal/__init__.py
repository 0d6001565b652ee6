"""Writes the output of commands on a terminal."""
