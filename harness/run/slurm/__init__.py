"""Implements the engine `slurm`, which runs trials as steps of an allocation that is held for the whole sweep."""
