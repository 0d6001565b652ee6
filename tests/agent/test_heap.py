"""The agent leaves the allocator as in a fresh interpreter.

glibc raises its mmap threshold when a block above it is freed. From then on blocks of that size come from the heap,
where the gaps between leaked blocks are lost, too: one and the same leak grew by 16 or by 874 KiB/step.
"""

from pathlib import Path

import pytest

from tests.agent.driver import run

SCRIPT = """\
import ctypes

BLOCK_BYTES = 300 << 10  # above glibc's first threshold of 128 KiB
FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()


class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in FIELDS]


def setup(disturbed=False):
    libc = ctypes.CDLL(None)
    libc.mallinfo.restype = Info
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    if disturbed:
        bytearray(4 * BLOCK_BYTES)  # made and freed

    def step():
        before = libc.mallinfo().hblks
        assert libc.malloc(BLOCK_BYTES)  # never freed: that would raise the threshold
        return {"own_mapping": libc.mallinfo().hblks - before}

    return step
"""


@pytest.mark.parametrize(("disturbed", "own_mappings"), [(False, {1}), (True, {0})])
def test_large_blocks_get_mappings_of_their_own_before_and_after_a_look(
    tmp_path: Path, thorough_python: str, disturbed: bool, own_mappings: set[int]
) -> None:
    told = run(tmp_path, thorough_python, SCRIPT, looks=[20, 40], params={"disturbed": disturbed})
    assert (told.done["end"], told.done["message"]) == ("completed", "")
    assert set(told.column("own_mapping")) == own_mappings
