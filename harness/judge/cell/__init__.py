"""One cell: the verdict over its launches, and the verdict on each signal."""
