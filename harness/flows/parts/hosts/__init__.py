"""Opens the machines of a sweep side by side, and compares those of a pool."""
