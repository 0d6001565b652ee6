"""Finds, pulls, builds, overlays and removes images on an engine, within the host's disk space."""
