"""Judges, before anything is started, whether an image runs on a GPU: yes, no, or unknown."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from harness.compat.image_requirements import Needs, Numbers, major_minor, numbers, shipped, sm
from harness.model import HostState, Trial
from harness.model.matrix import Gpu

CompatibilityState = Literal["runs", "incompatible", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Compatibility:
    """The answer whether an image runs on a GPU, with the reason in a few plain words."""

    state: CompatibilityState
    why: str


def can_run(needs: Needs, gpu: Gpu) -> str | None:
    """Return why an image cannot run on `gpu` ("CUDA 11.1 has no code for sm_89"); None if it can or may."""
    result = compatibility(needs, gpu)
    return result.why if result.state == "incompatible" else None


def compatibility_on(state: HostState, gpu: Gpu | None, needs: Needs) -> Compatibility:
    """Judge an image on a host; `gpu` is None if the host uses no GPU or reported none."""
    if state.problem is not None:
        return _unknown(state.problem)
    if gpu is not None:
        return compatibility(needs, gpu)
    if state.host.gpus == "none":
        return Compatibility(state="runs", why="without a GPU")
    return _unknown("the host reported no GPU")


def compatibility(needs: Needs, gpu: Gpu) -> Compatibility:
    """Judge an image on `gpu` by the first check that finds it incompatible, else by the first that is unknown."""
    if not needs.known:
        return _unknown("nothing is known about its requirements")
    checks = (_requirements(needs, gpu), _driver(needs, gpu), _runtime(needs, gpu), _code(needs, gpu))
    objections = [check for check in checks if check is not None]
    if objections:
        return next((check for check in objections if check.state == "incompatible"), objections[0])
    met = []
    if needs.cuda and gpu.compute_capability:
        met.append(f"CUDA {major_minor(needs.cuda)} on {sm(gpu.compute_capability)}")
    if needs.driver:
        met.append(f"driver {gpu.driver}, {needs.driver} required")
    return Compatibility(state="runs", why=", ".join(met) or "its requirements are met")


def _unknown(why: str) -> Compatibility:
    return Compatibility(state="unknown", why=why)


def _incompatible(why: str) -> Compatibility:
    return Compatibility(state="incompatible", why=why)


# ---------------------------------------------------------------- the checks; each returns None if nothing is wrong


def _requirements(needs: Needs, gpu: Gpu) -> Compatibility | None:
    """Check the conditions under which the container runtime refuses to start the image."""
    for name, text in needs.requirements.items():
        if is_met(text, gpu) is False:
            return _incompatible(f"{name} requires {text}; {_host(gpu)}")
    return None


def _driver(needs: Needs, gpu: Gpu) -> Compatibility | None:
    """Check the driver: one that is older than the image was built for needs a forward compatibility package."""
    had, wanted = numbers(gpu.driver), numbers(needs.driver)
    if wanted is None:
        return None
    if had is None:
        return _unknown(f"the driver's version is not known; {needs.driver} or later is required")
    if had >= wanted:
        return None
    older = f"needs driver {needs.driver} or later, but the host has {gpu.driver}"
    return _too_old(older, gpu, is_certain=needs.said_driver)


def _runtime(needs: Needs, gpu: Gpu) -> Compatibility | None:
    """Check the driver's CUDA: an older one works within a major version, else with a compatibility package at most."""
    had, wanted = numbers(gpu.cuda), numbers(needs.cuda)
    if had is None or wanted is None or had[:1] >= wanted[:1]:
        return None
    older = f"CUDA {major_minor(needs.cuda or '')} needs a driver with CUDA {wanted[0]}; {_host(gpu)}"
    return _too_old(older, gpu, is_certain=needs.said_cuda)


def _too_old(why: str, gpu: Gpu, *, is_certain: bool) -> Compatibility:
    """Return the answer for an old driver: only data-centre cards can use a forward compatibility package."""
    if is_certain and is_data_centre(gpu.name) is False:
        return _incompatible(why)
    return _unknown(f"{why}; a forward compatibility package in the image may help")


def _code(needs: Needs, gpu: Gpu) -> Compatibility | None:
    """Check whether anything in the image was compiled for the GPU."""
    if gpu.compute_capability is None:
        return _unknown("the GPU's compute capability is not known")
    if needs.architectures:
        return _built_code(needs, gpu.compute_capability)
    if needs.cuda is None or gpu.compute_capability not in shipped().capabilities:
        return _unknown(f"it is not known whether it has code for {sm(gpu.compute_capability)}")
    return _code_of(needs.cuda, needs, gpu.compute_capability)


def _code_of(cuda: str, needs: Needs, capability: str) -> Compatibility | None:
    """Check whether `cuda`, the oldest version that the image may have, has code for a GPU that the table lists."""
    name = f"CUDA {major_minor(cuda)}"
    lacks = f"{name} has no code for {sm(capability)}"
    least, dropped = shipped().capabilities[capability], numbers(shipped().dropped.get(capability))
    if dropped is not None and (numbers(cuda) or ()) >= dropped:
        return _incompatible(f"{name} no longer has code for {sm(capability)}")
    newest = numbers(needs.cuda_newest) or ()
    major, minor = (*newest, 0, 0)[:2]
    wanted = numbers(least) or ()
    if newest[:2] >= wanted:
        return None
    if not needs.said_cuda and (major, minor + 1) >= wanted:
        return _unknown(f"{lacks}, but the table may be off by one minor version, and {major_minor(least)} has it")
    return _incompatible(lacks)


def _built_code(needs: Needs, capability: str) -> Compatibility | None:
    """Check the listed code: machine code runs on later GPUs of the same major version, PTX on any later GPU."""
    card = numbers(capability) or ()
    listed = [(numbers(built) or (), ptx) for built, ptx in needs.architectures]
    if any(built[:1] == card[:1] and built <= card for built, _ in listed):
        return None
    if any(ptx and built <= card for built, ptx in listed):
        return _unknown(f"only PTX can run on {sm(capability)}: it is compiled at the first start, or refused")
    names = " ".join(sm(built) for built, _ in needs.architectures)
    return _incompatible(f"it has code for {names}, but none for {sm(capability)}")


def _host(gpu: Gpu) -> str:
    cuda = f", with CUDA {gpu.cuda}" if gpu.cuda else ""
    return f"the host's driver is {gpu.driver or 'of unknown version'}{cuda}"


# ---------------------------------------------------------------- kinds of cards


CONSUMER = re.compile(r"\b(?:GeForce|TITAN|GTX|RTX [2-5]0[5-9]0)\b", re.IGNORECASE)
DATA_CENTRE = frozenset({
    "TESLA", "K20", "K40", "K80", "M4", "M6", "M10", "M40", "M60", "P4", "P6", "P40", "P100", "V100", "T4",
    "A2", "A10", "A10G", "A16", "A30", "A40", "A100", "A800", "L2", "L4", "L20", "L40", "L40S", "H20", "H100",
    "H200", "H800", "GH200", "B100", "B200", "B300", "GB200", "GB300",
})  # fmt: skip


def is_data_centre(name: str) -> bool | None:
    """Return whether the driver supports forward compatibility packages on the card. None for workstation cards and
    unknown names: some of them are supported, and only the driver knows which.
    """
    if CONSUMER.search(name):
        return False
    return True if DATA_CENTRE & set(re.split(r"[\s-]+", name.upper())) else None


# ---------------------------------------------------------------- requirements of the container runtime
#
# For example `cuda>=11.8 brand=tesla,driver>=470`: all conditions of a group (joined by commas) must hold, for at
# least one of the groups (separated by spaces). A condition holds (True), does not hold (False), or cannot be evaluated
# here (None).


CONDITION = re.compile(r"(\w+)\s*(>=|<=|!=|==|=|>|<)\s*(\S+)")
COMPARE: dict[str, Callable[[Numbers, Numbers], bool]] = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, "==": operator.eq, "=": operator.eq, ">": operator.gt,
    "<": operator.lt,
}  # fmt: skip


def is_met(requirement: str, gpu: Gpu) -> bool | None:
    """Return whether `gpu` and its driver meet a requirement; None if that is unknown."""
    text = re.sub(r"\s*(>=|<=|!=|==|=|>|<)\s*", r"\1", requirement)
    groups = [[_condition(each, gpu) for each in group.split(",") if each] for group in text.split()]
    values = [False if False in group else None if None in group else True for group in groups]
    if True in values or not values:
        return True
    return None if None in values else False


def _condition(text: str, gpu: Gpu) -> bool | None:
    match = CONDITION.fullmatch(text)
    if match is None:
        return None
    name, sign, wanted = match.groups()
    if name == "brand":
        # No driver reports a consumer card as `tesla`; older ones report data-centre cards as such.
        never = sign in ("=", "==") and wanted == "tesla" and is_data_centre(gpu.name) is False
        return False if never else None
    left = numbers({"cuda": gpu.cuda, "driver": gpu.driver, "arch": gpu.compute_capability}.get(name))
    right = numbers(wanted)
    return None if left is None or right is None else COMPARE[sign](left, right)


# ---------------------------------------------------------------- signatures of failures


FailureKind = Literal["infrastructure", "incompatible", "oom"]
FAILURES = ("crash", "hang", "setup", "infrastructure")


@dataclass(frozen=True)
class KnownFailure:
    """A failure that a pattern in its message tells: `infrastructure` (try again), `incompatible` (cannot run there),
    `oom` (bad). `{1}` in `why` is the pattern's first group. `at_start`: the pattern counts only if no step was made,
    because an image that makes steps on a GPU can run there.
    """

    kind: FailureKind
    pattern: str
    why: str
    at_start: bool = True


BROKEN_XIDS = "48|62|63|64|74|79|92|94|95|119|120|140|154"
"""Xid numbers of faults of the hardware or the driver itself; programs can cause the others (13, 31, 43, 45, …)."""

SIGNS = (
    # The first match counts: a lost GPU causes errors of every other kind.
    KnownFailure(
        "infrastructure", r"fallen off the bus|\bGPU is lost",
        "the GPU has fallen off the bus; see `dmesg` on the host", at_start=False,
    ),
    KnownFailure(
        "infrastructure", rf"\bXid(?: \(PCI:[^)]*\):)? ({BROKEN_XIDS})\b",
        "the driver reported Xid {1}, a fault of the GPU; see `dmesg` on the host", at_start=False,
    ),
    KnownFailure(
        "infrastructure", r"uncorrectable (?:NVLink |ECC )?error",
        "the GPU reported an error that it could not correct", at_start=False,
    ),
    KnownFailure(
        "infrastructure", r"Failed to initialize NVML: ([\w/ ]+)",
        "the container has lost the driver (NVML: {1}); see `nvidia-smi` on the host", at_start=False,
    ),
    KnownFailure(
        "infrastructure", r"nvidia-container-cli: (?:initialization|detection) error: ([^\n\"]+)", "no GPU: {1}"
    ),
    KnownFailure(
        "infrastructure", r"Error 802: system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        "the host's GPUs are not ready (CUDA error 802): its fabric manager is not running",
    ),
    KnownFailure(
        "infrastructure", r"device\(s\) is/are busy or unavailable|CUDA_ERROR_DEVICE_UNAVAILABLE",
        "the GPU is busy: another process has exclusive use of it",
    ),
    KnownFailure(
        "incompatible", r"unsatisfied condition: ([^,\n\\\"]+)",
        "the image requires {1}, but the host's driver is older",
    ),
    KnownFailure(
        "incompatible", r"forward compatibility was attempted on non supported HW|cuInit\(0\) returned 804",
        "the image needs a newer driver, and its forward compatibility package works on data-centre cards only "
        "(CUDA error 804)",
    ),
    KnownFailure(
        "incompatible",
        r"built for NVIDIA Driver Release ([\d.]+) or later, *but\s*version ([\d.]+) was detected and\s+compatibility "
        r"mode is UNAVAILABLE",
        "needs driver {1} or later, but the host has {2}",
    ),
    KnownFailure(
        "incompatible", r"CUDA driver version is insufficient for CUDA runtime version|CUDA_ERROR_INSUFFICIENT_DRIVER",
        "the host's driver is too old for the image's CUDA",
    ),
    KnownFailure(
        "incompatible", r"PTX was compiled with an unsupported toolchain|CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the host's driver is too old for the code in the image",
    ),
    KnownFailure(
        "incompatible", r"with CUDA capability (sm_\d+) is not compatible with the current PyTorch installation",
        "its PyTorch was not built for {1}",
    ),
    KnownFailure(
        "incompatible",
        r"no kernel image is available for execution|CUDA_ERROR_NO_BINARY_FOR_GPU|cudaErrorNoKernelImageForDevice",
        "nothing in the image was compiled for this GPU (no kernel image)",
    ),
    KnownFailure(
        "incompatible", r"(cuBLAS|cuDNN)_STATUS_ARCH_MISMATCH|cudnnStatusArchMismatch",
        "its libraries do not support this GPU (architecture mismatch)",
    ),
    KnownFailure(
        "incompatible", r"failed to (?:make|create) cuFFT batched plan: ?(?:5|11)\b|CUFFT_INTERNAL_ERROR",
        "its cuFFT cannot make a plan on this GPU",
    ),
    KnownFailure(
        "incompatible", r"Detected (?:NVIDIA )+([^\n]+?) GPU, which is not (?:yet )?supported",
        "the container does not support the {1}",
    ),
    KnownFailure(
        "incompatible", r"No (?:NVIDIA )?supported GPU\(s\) detected to run this container",
        "the container supports no GPU of this host",
    ),
    KnownFailure(
        "infrastructure", r"The NVIDIA Driver was not detected|no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE",
        "the container sees no GPU; see `harness doctor`",
    ),
    KnownFailure(
        "oom",
        r"CUDA (?:error: )?out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|OOM when allocating tensor"
        r"|RESOURCE_EXHAUSTED: Out of memory|(?:CUBLAS|CUDNN|CUFFT)_(?:STATUS_)?ALLOC_FAILED"
        r"|failed to (?:make|create) cuFFT batched plan: ?2\b",
        "out of GPU memory", at_start=False,
    ),
)  # fmt: skip


def signature(text: str, *, steps: int = 0) -> KnownFailure | None:
    """Return the meaning of the output or message of a trial that failed after `steps` steps; None if it is unknown."""
    for sign in SIGNS:
        if (steps == 0 or not sign.at_start) and (match := re.search(sign.pattern, text, re.IGNORECASE)):
            groups = (group or "" for group in match.groups())
            return replace(sign, why=sign.why.format(match[0], *groups))
    return None


def explain_failure(trial: Trial) -> KnownFailure | None:
    """Return the meaning of a failed trial's message and output; None if it is unknown. A trial that ended well, or
    whose end the kernel or Python reported, needs no explanation: NVIDIA's images print some of these warnings and then
    run.
    """
    if trial.end not in FAILURES:
        return None
    # A command that is sampled by time only makes no steps: its rows have no durations.
    is_timed = trial.trace is None or trial.figures("step_s") is not None
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
