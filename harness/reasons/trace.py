"""Lists the reasons for the verdict on one trace, and the names of what they are about."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class GrowthReason(Reason):
    """Names the pattern of a leak, or the condition of a leak that a series does not meet."""

    STEADY = "at the same rate throughout"
    BEGAN_LATE = "at the same rate since it began"
    COVERED_BY_WARM_UP = "at the same rate since the warm-up"
    RISING_FLOOR = "in the floor under its saw-teeth"
    STEADY_JUMPS = "by {jumps} jumps at a steady rate"
    STEADY_AT_LOOKS = (
        "at the same rate from look to look, with garbage collected; a table that doubles in size may look the same"
    )

    NO_ROWS = "no samples of memory or step times to judge"
    TOO_FEW_ROWS = "too few samples to judge: {rows} of at least {least}"
    NO_STEADY_GROWTH = "no steady growth in the second half"
    BELOW_LIMIT = "the growth is slower than the limit"
    FELL_BEFORE = "memory fell before it grew"
    NOT_THROUGHOUT = "the growth is not steady over the whole trace"
    SLOWING_DOWN = "the growth is slowing down"
    FEW_ALLOCATIONS = "it grew by no more than two of its smallest allocations"
    ONE_JUMP = "one jump accounts for most of the growth"
    RANDOM_WALK = "memory that rises and falls at random may grow as much"


@unique
class TraceReason(Reason):
    """Says what a trace shows about memory, the C heap, GPU memory, child processes and the step time."""

    GROWS = "{memory} grows {rate:.4g} KiB/step ({low:.4g} to {high:.4g})"
    GROWS_BY_CYCLES = "{memory} grows {rate:.4g} KiB/step, and gc.collect frees it: reference cycles"
    GROWS_SLOWLY = (
        "{memory} still grows {rate:.2g} KiB/step, below the limit of {limit:g}: "
        "a leak of more than {excluded:.2g} KiB/step is ruled out"
    )
    GROWS_EARLY = "{grows}: too early to distinguish it from a buffer that fills"

    PLATEAU = "{memory} rose {rise_mib:.1f} MiB and then stopped rising"
    FLAT = "{memory} is flat"
    MAY_LEAK = "{grows}, but {unmet}"
    NOISY = "{memory} is too noisy to tell"
    RISE_DUE = "{memory} rises by {rise:.4g} KiB at a time, and the next rise may be due"

    RULED_OUT = "{found}: a leak of more than {excluded} KiB/step is ruled out"
    STEADY_RULED_OUT = "{found}, and a steady one of {detectable} would have been seen"

    HEAP_ALONE = "RSS alone does not show it: the growth fills memory that was free, or garbage hides it"
    GPU_SHARED = "{found}, but other processes use the GPU"
    CHILDREN_GROW = (
        "the memory of the processes that it started grows {rate:.4g} KiB/step ({low:.4g} to {high:.4g} between the "
        "looks), which its own samples do not cover: measure it as a `command`; {why}"
    )

    SLOWDOWN = "a step takes {rise:.0%} longer at the end than after the first quarter"
    STEPS_TOO_SHORT = "the steps are too short for the clock"
    STEP_TIME_FLAT = "step time is flat; memory was not measured"
    UP_TO_STEP = "{found}; up to step {last}"


@unique
class CountReason(Reason):
    """Says why a count grows, does not grow, or cannot be judged."""

    GROWS = "{count}: {pace} more, at a constant rate"
    RULED_OUT = "growth of more than {excluded:.2g} a step is ruled out"

    NOT_AT_ONE_RATE = "it rose by {rise:.4g} in the last {steps:,.0f} steps, but not at a constant rate"
    RISES_AND_FALLS = "it rises and falls, and both its highest and its lowest counts rise"
    COUNTED_TOO_RARELY = "it was counted too rarely to judge"
    SHM_SHARED = "other launches used the same /dev/shm at the same time; a launch that runs alone would settle it"


@unique
class MemoryName(Reason):
    """Names the memories that can grow."""

    RSS = "RSS"
    HEAP = "the C heap in use"
    GPU_POOL = "the framework's GPU memory"
    GPU_PROCESS = "the process's GPU memory"
    GPU = "the GPU's memory"
    GPU_RESERVED = "the GPU memory reserved by the framework"


@unique
class LayerName(Reason):
    """Names the layers that can hold leaked memory."""

    CYCLES = "reference cycles"
    OBJECTS = "python objects"
    NATIVE = "native heap"
    ALLOCATOR = "allocator retention"
    DIRECT_MMAP = "direct mmap"
    FILES = "file or shared memory"

    GPU_POOL = "gpu pool"
    GPU_FRAGMENTATION = "gpu fragmentation"
    GPU_DRIVER = "gpu driver"
