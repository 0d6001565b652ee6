"""Collects the evidence on one finding or cell: `issue`, `repro` and `diff`."""
