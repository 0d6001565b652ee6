"""Compares the cells of stored runs, or of the hosts of one run."""
