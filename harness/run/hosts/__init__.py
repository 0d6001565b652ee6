"""Manages the hosts of a run: their rows and launches, launches side by side, and GPUs."""
