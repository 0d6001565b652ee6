"""Holds what several commands share: streams, signals, and the reports of a run."""
