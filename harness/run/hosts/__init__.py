"""The hosts of a run: their rows and launches, their GPUs, who owns what, and what may run side by side."""
