"""Reads the text of a matrix file: YAML with positions and variables."""
