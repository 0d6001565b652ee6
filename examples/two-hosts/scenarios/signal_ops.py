"""One transform a step: a stand-in for tf.signal in the story, without TensorFlow."""

import ctypes
import os
import time

PARAMS = {"op": ["rfft", "dct"], "input": ["random", "variable", "constant"]}

FIRST_BAD = (1, 15, 5)
LEAKING_INPUTS = ("random", "variable")
LOST_BYTES = 24 * 1024
HEALTHY_S = 50e-6
SLOWER_S = 0.5e-6  # how much longer each step takes than the one before


def setup(op="rfft", input="random"):  # noqa: A002 - the name that the story uses
    """Return a step that takes 0.05 ms.

    From 1.15.5 on, unless the input is constant, each step loses 24 KiB of native memory and takes longer than the one
    before.
    """
    version = tuple(map(int, os.environ["NVIDIA_TENSORFLOW"].split("+")[0].split(".")))
    is_bad = version >= FIRST_BAD and input in LEAKING_INPUTS
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    made = 0

    def step():
        nonlocal made
        busy(HEALTHY_S + is_bad * SLOWER_S * made)
        if is_bad:
            ctypes.memset(malloc(LOST_BYTES), 1, LOST_BYTES)
        made += 1

    return step


def busy(seconds):
    """Keep the processor busy, because a sleep is less precise."""
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        pass
