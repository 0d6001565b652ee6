"""Comparison of all versions of a block by one figure, measured in rounds side by side."""
