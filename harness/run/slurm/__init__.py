"""Implements the Slurm engine, which runs trials as steps of an allocation that is held for the sweep."""
