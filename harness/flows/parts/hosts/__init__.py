"""The machines of a sweep: opened side by side, and the rows of a pool spread over its machines."""
