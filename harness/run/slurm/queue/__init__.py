"""Communicates with Slurm's queue: runs Slurm's commands, waits for an allocation and holds it."""
