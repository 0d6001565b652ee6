"""Recognises known failure messages: out of memory, incompatible with the GPU, or a fault of the machine. SIGNS is the
whole table; the tests check it against messages of real systems. Detects clocks that were reduced in a trial, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.model import Trial

FailureKind = Literal["infrastructure", "incompatible", "oom"]
FAILURES = ("crash", "hang", "setup", "infrastructure")


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The meaning of a text: `infrastructure` (try again), `incompatible` (cannot run there), `oom` (bad)."""

    kind: FailureKind
    why: str


@dataclass(frozen=True)
class FailurePattern:
    """A pattern of failure messages. `{1}` in `why` is the pattern's first group. `at_start`: the pattern counts only
    if no step was made, because an image that makes steps on a GPU can run there.
    """

    kind: FailureKind
    pattern: str
    why: str
    at_start: bool = True


BROKEN_XIDS = "48|62|63|64|74|79|92|94|95|119|120|140|154"
"""Xid numbers of faults of the hardware or the driver itself; programs can cause the others (13, 31, 43, 45, …)."""

SIGNS = (
    # The first match counts: a lost GPU causes errors of every other kind.
    FailurePattern(
        "infrastructure", r"fallen off the bus|\bGPU is lost",
        "the GPU has fallen off the bus; see `dmesg` on the host", at_start=False,
    ),
    FailurePattern(
        "infrastructure", rf"\bXid(?: \(PCI:[^)]*\):)? ({BROKEN_XIDS})\b",
        "the driver reported Xid {1}, a fault of the GPU; see `dmesg` on the host", at_start=False,
    ),
    FailurePattern(
        "infrastructure", r"uncorrectable (?:NVLink |ECC )?error",
        "the GPU reported an error that it could not correct", at_start=False,
    ),
    FailurePattern(
        "infrastructure", r"Failed to initialize NVML: ([\w/ ]+)",
        "the container has lost the driver (NVML: {1}); see `nvidia-smi` on the host", at_start=False,
    ),
    FailurePattern(
        "infrastructure", r"nvidia-container-cli: (?:initialization|detection) error: ([^\n\"]+)", "no GPU: {1}"
    ),
    FailurePattern(
        "infrastructure", r"Error 802: system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        "the host's GPUs are not ready (CUDA error 802): its fabric manager is not running",
    ),
    FailurePattern(
        "infrastructure", r"device\(s\) is/are busy or unavailable|CUDA_ERROR_DEVICE_UNAVAILABLE",
        "the GPU is busy: another process has exclusive use of it",
    ),
    FailurePattern(
        "incompatible", r"unsatisfied condition: ([^,\n\\\"]+)",
        "the image requires {1}, but the host's driver is older",
    ),
    FailurePattern(
        "incompatible", r"forward compatibility was attempted on non supported HW|cuInit\(0\) returned 804",
        "the image needs a newer driver, and its forward compatibility package works on data-centre cards only "
        "(CUDA error 804)",
    ),
    FailurePattern(
        "incompatible",
        r"built for NVIDIA Driver Release ([\d.]+) or later, *but\s*version ([\d.]+) was detected and\s+compatibility "
        r"mode is UNAVAILABLE",
        "needs driver {1} or later, but the host has {2}",
    ),
    FailurePattern(
        "incompatible", r"CUDA driver version is insufficient for CUDA runtime version|CUDA_ERROR_INSUFFICIENT_DRIVER",
        "the host's driver is too old for the image's CUDA",
    ),
    FailurePattern(
        "incompatible", r"PTX was compiled with an unsupported toolchain|CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the host's driver is too old for the code in the image",
    ),
    FailurePattern(
        "incompatible", r"with CUDA capability (sm_\d+) is not compatible with the current PyTorch installation",
        "its PyTorch was not built for {1}",
    ),
    FailurePattern(
        "incompatible",
        r"no kernel image is available for execution|CUDA_ERROR_NO_BINARY_FOR_GPU|cudaErrorNoKernelImageForDevice",
        "nothing in the image was compiled for this GPU (no kernel image)",
    ),
    FailurePattern(
        "incompatible", r"(cuBLAS|cuDNN)_STATUS_ARCH_MISMATCH|cudnnStatusArchMismatch",
        "its libraries do not support this GPU (architecture mismatch)",
    ),
    FailurePattern(
        "incompatible", r"failed to (?:make|create) cuFFT batched plan: ?(?:5|11)\b|CUFFT_INTERNAL_ERROR",
        "its cuFFT cannot make a plan on this GPU",
    ),
    FailurePattern(
        "incompatible", r"Detected (?:NVIDIA )+([^\n]+?) GPU, which is not (?:yet )?supported",
        "the container does not support the {1}",
    ),
    FailurePattern(
        "incompatible", r"No (?:NVIDIA )?supported GPU\(s\) detected to run this container",
        "the container supports no GPU of this host",
    ),
    FailurePattern(
        "infrastructure", r"The NVIDIA Driver was not detected|no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE",
        "the container sees no GPU; see `harness doctor`",
    ),
    FailurePattern(
        "oom",
        r"CUDA (?:error: )?out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|OOM when allocating tensor"
        r"|RESOURCE_EXHAUSTED: Out of memory|(?:CUBLAS|CUDNN|CUFFT)_(?:STATUS_)?ALLOC_FAILED"
        r"|failed to (?:make|create) cuFFT batched plan: ?2\b",
        "out of GPU memory", at_start=False,
    ),
)  # fmt: skip


def signature(text: str, *, steps: int = 0) -> Signature | None:
    """Return the meaning of the output or message of a trial that failed after `steps` steps; None if it is unknown."""
    for sign in SIGNS:
        if (steps == 0 or not sign.at_start) and (match := re.search(sign.pattern, text, re.IGNORECASE)):
            groups = (group or "" for group in match.groups())
            return Signature(kind=sign.kind, why=sign.why.format(match[0], *groups))
    return None


def explain_failure(trial: Trial) -> Signature | None:
    """Return the meaning of a failed trial's message and output; None if it is unknown. A trial that ended well, or
    whose end the kernel or Python reported, needs no explanation: NVIDIA's images print some of these warnings and then
    run.
    """
    if trial.end not in FAILURES:
        return None
    durations = trial.trace.column("step_s") if trial.trace is not None else None
    # A command that is sampled by time only makes no steps: its rows have no durations.
    is_timed = trial.trace is None or (durations is not None and bool(np.isfinite(durations).any()))
    return signature(f"{trial.message}\n{trial.output.tail}", steps=trial.last_step if is_timed else 0)


# ---------------------------------------------------------------- reduced clocks


LEAST_SHARE = 0.05
"""Smallest share of the time between two looks that counts as throttling; less does not move a median."""
CLOCK_FELL = 0.9
"""Share of a trial's highest clock below which the clock has fallen. Most cards always run at their power cap, in every
trial alike, which does no harm as long as the clock does not fall."""
HARDWARE = 0x08 | 0x80
"""NVML's bits for hardware slowdown, caused by power draw, power supply or an external signal."""


def throttled(trial: Trial) -> str | None:
    """Return why the step times of `trial` must not be compared; None if no clock was reduced."""
    looks = trial.trace.looks if trial.trace is not None else ()
    highest_mhz = max((mhz for look in looks if (mhz := look.of("gpu_clock_mhz")) is not None), default=0.0)
    for look in looks:
        mhz, celsius = look.of("gpu_clock_mhz"), look.of("gpu_temperature_c")
        heat, power = look.of("gpu_heat_share") or 0.0, look.of("gpu_power_share") or 0.0
        fell = mhz is not None and mhz < CLOCK_FELL * highest_mhz
        braked = bool(int(look.of("gpu_reasons") or 0) & HARDWARE)
        if heat >= LEAST_SHARE or (power >= LEAST_SHARE and (braked or fell)):
            cause, share = ("heat", heat) if heat >= LEAST_SHARE else ("power", power)
            figures = f"{'' if mhz is None else f', {mhz:.0f} MHz'}{'' if celsius is None else f', {celsius:.0f} °C'}"
            return (
                f"the GPU's clock was held down by {cause} for {share:.0%} of the time before step {look.step}{figures}"
            )
    return None
