"""Asks the driver's own library about the GPUs that the container sees."""
