"""Interprets the files of wrapping probes, and searches for the largest size that fits. Pure."""
