"""Memory blocks of the Python allocator in use: grows with Python objects, and with nothing native."""

import sys


def reader():
    """A function that returns the number of blocks, or None on an interpreter without that count."""
    return getattr(sys, "getallocatedblocks", None)
