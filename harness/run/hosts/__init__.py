"""Manages the hosts of a run: their rows and launches, their GPUs, their owners, and the launches side by side."""
