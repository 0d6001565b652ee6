"""Out-of-memory reports, as programs write them."""

from __future__ import annotations

import pytest

from harness.probes.reading import read_oom
from harness.probes.records import MemoryHolder
from tests.unit import processor

MIB = 1 << 20
TENSORFLOW = """\
ResourceExhaustedError: OOM when allocating tensor with shape[2,720,1280,64] and type float on \
/job:localhost/replica:0/task:0/device:{device} by allocator {allocator}
[[node conv2/Conv2D (defined at graph.py:78) ]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom.

Current usage from device: /job:localhost/replica:0/task:0/device:{device}, allocator: {allocator}
  450.00MiB from conv1/Conv2D
  1.25GiB from gradients/conv1/Conv2D_grad
  288B from conv1/weights
  Remaining 94 nodes with 29.03MiB
"""


@pytest.mark.parametrize(("device", "allocator"), [("GPU:0", "GPU_0_bfc"), ("CPU:0", "cpu")])
def test_tensorflow_s_table_is_read_on_gpu_and_cpu(device: str, allocator: str) -> None:
    report = read_oom("noise\n" + TENSORFLOW.format(device=device, allocator=allocator))
    assert report is not None
    assert report.source == "tensorflow"
    assert report.shape == (2, 720, 1280, 64)
    assert report.wanted_bytes == 450 * MIB  # 2 x 720 x 1280 x 64 x 4 bytes
    assert report.device.endswith(device)
    assert report.holders[0] == MemoryHolder(op="gradients/conv1/Conv2D_grad", bytes=1280 * MIB)
    assert report.holders[1:] == (
        MemoryHolder(op="conv1/Conv2D", bytes=450 * MIB),
        MemoryHolder(op="conv1/weights", bytes=288),
    )
    assert (report.remaining_nodes, report.remaining_bytes) == (94, round(29.03 * MIB))


def test_tensorflow_without_a_table_still_tells_what_was_wanted() -> None:
    """This is the text of 1.15.5 on a CPU if the first tensor is too large."""
    text = (
        "OOM when allocating tensor with shape[4,360,640,64] and type float on"
        " /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu\n\t [[node conv1/Conv2D]]"
    )
    report = read_oom(text)
    assert report is not None
    assert (report.wanted_bytes, report.holders, report.remaining_nodes) == (225 * MIB, (), None)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.65 GiB total capacity; 20.50 GiB"
        " already allocated; 1.50 GiB free; 21.00 GiB reserved in total by PyTorch)",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
        " 23.65 GiB of which 1.50 GiB is free. Of the allocated memory 20.50 GiB is allocated by PyTorch",
    ],
    ids=["older", "newer"],
)
def test_torch_s_two_ways_of_saying_it(text: str) -> None:
    report = read_oom(text)
    assert report is not None
    assert report.source == "cuda"
    gib = [None if count is None else count / (1 << 30) for count in (report.wanted_bytes, report.total_bytes)]
    assert gib == [2.0, pytest.approx(23.65)]
    assert report.free_bytes == round(1.5 * (1 << 30))


@pytest.mark.parametrize("who", ["Memory cgroup out of memory: Killed process", "Out of memory: Kill process"])
def test_the_kernel_s_line(who: str) -> None:
    line = f"[12.3] {who} 4711 (python3) total-vm:9000kB, anon-rss:4096kB, file-rss:1024kB, shmem-rss:0kB\nanon-rss:1kB"
    report = read_oom(line)
    assert report is not None
    assert (report.source, report.process) == ("kernel", "python3")


@pytest.mark.parametrize("text", ["", "MemoryError", "OOM when allocating", "out of memory"])
def test_what_says_nothing_is_nothing(text: str) -> None:
    assert read_oom(text) is None


OURS = TENSORFLOW.format(device="GPU:0", allocator="GPU_0_bfc")
CUDA = "CUDA out of memory. Tried to allocate {} GiB. GPU 0 has a total capacity of {} GiB of which {} GiB is free"


@pytest.mark.parametrize("number", ["1.2.3", ".", "...", "9" * 400, "9" * 5000, "\N{ARABIC-INDIC DIGIT ONE}", "-1", ""])
def test_an_odd_number_is_not_known(number: str) -> None:
    """This was a traceback after hours of a probe."""
    read_oom(CUDA.format(number, number, number))
    report = read_oom(OURS.replace("450.00", number).replace("94", number).replace("1280", number))
    assert report is not None
    assert report.wanted_bytes in (None, 4 * 2 * 720 * 64)


def test_a_tensor_beyond_any_memory_is_not_told_in_bytes() -> None:
    """Its size is a number that no report can show."""
    report = read_oom(OURS.replace("1280", ",".join(["9" * 15] * 28)))
    assert report is not None
    assert report.wanted_bytes is None


def test_a_long_text_takes_no_longer_than_its_length() -> None:
    """An image that printed digits stopped the sweep."""
    processor.on_long_texts(
        ["1", "1.", "1 ", "Current usage from device: ", "Out of memory: Killed process 1 (", "total capacity of 1",
         "  1B", "OOM when allocating tensor with shape[1] and type a on ", "OOM when allocating tensor with shape[1,1",
         "1,"],
        imports="from harness.probes.reading import read_oom",
        code="read_oom(text); read_oom('CUDA out of memory. Tried to allocate 1 GiB ' + text);"
        " read_oom('OOM when allocating tensor with shape[' + text)",
    )  # fmt: skip
