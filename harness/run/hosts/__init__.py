"""The hosts of a run: their lanes, GPUs and owners."""
