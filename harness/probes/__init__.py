"""Says which probes run where, interprets their launches, and finds the largest size that fits. Pure functions."""
