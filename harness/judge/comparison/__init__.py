"""Compares all versions of a block by one figure that is measured in rounds, side by side."""
