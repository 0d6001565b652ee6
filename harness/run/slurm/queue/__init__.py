"""Talks to the queue of Slurm: runs its commands, waits for an allocation and holds it."""
