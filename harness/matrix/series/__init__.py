"""Reads the `series:` of a matrix file: the versions, and the image of each."""
