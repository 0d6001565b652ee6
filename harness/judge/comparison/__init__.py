"""One figure of every version of a row, measured in rounds side by side."""
