"""The hosts of a run: their rows, launches, GPUs and owners, and what runs beside what."""
