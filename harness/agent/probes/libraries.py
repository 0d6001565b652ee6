"""Lists the libraries of interest that a process has mapped, and the allocator that it uses."""

import os
import re

INTEREST = re.compile(
    r"^lib(cu|nv|nccl|tensorflow|torch|onnxruntime|mkl|openblas|jemalloc|tcmalloc|mimalloc|c-|c\.so|c\.musl)|^ld-musl"
)
ALLOCATORS = re.compile(r"^lib(jemalloc|tcmalloc|mimalloc)")


def mapped(pid="self"):
    """Return the set of the paths of the files that a process has mapped; empty if it is gone or not readable."""
    try:
        with open("/proc/%s/maps" % pid, "rb") as file:
            return {os.fsdecode(line.split(None, 5)[5].rstrip(b"\n")) for line in file if b" /" in line}
    except OSError:
        return set()


def of_interest(pid):
    """Return the sorted names of CUDA, framework, maths and allocator libraries, with the C library."""
    names = {os.path.basename(path) for path in mapped(pid)}
    return sorted(name for name in names if INTEREST.match(name))


def foreign_allocator():
    """Return the preloaded allocator that replaces malloc, or None. Call it before importing the scenario."""
    names = {os.path.basename(path) for path in mapped()}
    return next((name for name in names if ALLOCATORS.match(name)), None)
