"""Memory blocks of the Python allocator in use. The count grows with Python objects, not with native memory."""

import sys


def reader():
    """Return a function that returns the number of blocks, or None on an interpreter without that count."""
    return getattr(sys, "getallocatedblocks", None)
