"""Compares all versions of a row by one figure that is measured in rounds, side by side."""
