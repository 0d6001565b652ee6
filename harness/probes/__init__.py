"""Says which probes run where, interprets what their launches left, and searches for the largest size that fits. Pure."""
