"""One cell: the verdict over its launches, and what it shows of each signal."""
