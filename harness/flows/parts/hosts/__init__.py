"""The machines of a sweep: opened side by side, and those of a pool compared."""
