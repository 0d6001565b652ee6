"""Reads how much of the C heap is in use, from glibc's mallinfo2 (2.33 and later) or mallinfo, whose ints wrap at 2^32.

The sum of uordblks (in all arenas) and hblkhd (blocks with their own mapping).
"""

from .. import libc

FIELDS = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
WRAP = 1 << 32


def heap_reader(foreign_allocator):
    """Return a function that returns KiB; None without glibc, or if the process uses another allocator."""
    if foreign_allocator:
        return None
    wide, narrow = libc.symbol("mallinfo2"), libc.symbol("mallinfo")
    if wide is not None:
        return _reader(wide, libc.ctypes.c_size_t, int, int)
    return None if narrow is None else _reader(narrow, libc.ctypes.c_uint, Unwrapped(), Unwrapped())


def _reader(mallinfo, number, arenas, mapped):
    fields = [(name, number) for name in FIELDS]
    mallinfo.restype = type("MallInfo", (libc.ctypes.Structure,), {"_fields_": fields})
    mallinfo.argtypes = []

    def read():
        info = mallinfo()
        return (arenas(info.uordblks) + mapped(info.hblkhd)) / 1024.0

    return read


class Unwrapped(object):
    """Reconstructs a count from its low 32 bits, correctly if it changes by less than 2 GiB between calls."""

    def __init__(self):
        self._value = 0

    def __call__(self, low):
        move = (low - self._value + WRAP // 2) % WRAP - WRAP // 2
        self._value = max(self._value + move, 0)
        return self._value


def trim():
    """Return free heap to the system; return False if the C library cannot do that."""
    malloc_trim = libc.symbol("malloc_trim")
    if malloc_trim is None:
        return False
    malloc_trim(libc.ctypes.c_size_t(0))
    return True
