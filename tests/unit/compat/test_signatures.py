"""Texts that users have published, and what they mean."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from harness.compat import explain_failure, signature
from harness.compat.image_on_gpu import SIGNS
from harness.model import Trace, Trial
from tests.players.trials import made_trial

DRIVER_804 = """
ERROR: This container was built for NVIDIA Driver Release 450.51 or later, but
       version 440.33.01 was detected and compatibility mode is UNAVAILABLE.

       [[CUDA Driver UNAVAILABLE (cuInit(0) returned 804)]]
"""
DRIVER = """NVIDIA Release 23.02 (build 51772899)
ERROR: This container was built for NVIDIA Driver Release 525.85 or later, but
       version 470.199.02 was detected and compatibility mode is UNAVAILABLE.
"""
DRIVER_IN_ONE_LINE = (
    "This container was built for NVIDIA Driver Release 545.23 or later, butversion 535.104.05 was detected and "
    "compatibility mode is UNAVAILABLE"
)
DETECTED = """
WARNING: Detected NVIDIA NVIDIA GeForce RTX 4090 GPU, which is not yet supported in this version of the container
ERROR: No supported GPU(s) detected to run this container
"""
CUFFT = """
2019-08-23 10:57:05.092767: E tensorflow/stream_executor/cuda/cuda_fft.cc:261] failed to make cuFFT batched plan:5
2019-08-23 10:57:05.092788: F tensorflow/stream_executor/cuda/cuda_fft.cc:444] failed to initialize batched cufft plan \
with customized allocator: Failed to make cuFFT batched plan.
Aborted (core dumped)
"""
CUFFT_11 = """
2020-12-09 16:54:19.478050: E external/org_tensorflow/tensorflow/stream_executor/cuda/cuda_fft.cc:207] failed to \
create cuFFT batched plan:11
"""
TORCH_86 = """
/opt/conda/lib/python3.6/site-packages/torch/cuda/__init__.py:143: UserWarning:
NVIDIA GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch installation.
The current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70.
"""
KERNEL_IMAGE = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    "CUDA kernel errors might be asynchronously reported at some other API call,so the stacktrace below might be "
    "incorrect."
)
ERROR_804 = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non "
    "supported HW"
)
INSUFFICIENT = (
    "tensorflow.python.framework.errors_impl.InternalError: cudaGetDevice() failed. Status: CUDA driver version is "
    "insufficient for CUDA runtime version"
)
REQUIREMENT = (
    "OCI runtime create failed: container_linux.go:370: starting container process caused: process_linux.go:459: "
    "container init caused: Running hook #0:: error running hook: exit status 1, stdout: , stderr: "
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=11.0, please update your driver to a newer "
    "version, or use an earlier cuda container: unknown"
)
REQUIREMENT_ESCAPED = (
    '\\\\\\"nvidia-container-cli: requirement error: unsatisfied condition: cuda >= 9.0\\\\\\\\n\\\\\\"\\"'
)
XID_79 = "[74889.644132] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
XID_48 = "NVRM: Xid (PCI:0000:3b:00): 48, pid=12345, DBE (double bit error) observed"
OOM_TORCH = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 7.15 GiB already "
    "allocated; 15.19 MiB free; 7.20 GiB reserved in total by PyTorch)"
)
CUBLAS = "CUBLASError: an absent device architectural feature is required (code 8, CUBLAS_STATUS_ARCH_MISMATCH)"
CUDNN = "Check failed: status == CUDNN_STATUS_SUCCESS (6 vs. 0)  CUDNN_STATUS_ARCH_MISMATCH"
K80 = (
    "ERROR: Detected NVIDIA Tesla K80 GPU, which is not supported by this container\n"
    "ERROR: No NVIDIA supported GPU(s) detected to run this container"
)


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        (DRIVER_804, "incompatible", "the image needs a newer driver, and its forward compatibility package works on"),
        (DRIVER, "incompatible", "needs driver 525.85 or later, but the host has 470.199.02"),
        (DRIVER_IN_ONE_LINE, "incompatible", "needs driver 545.23 or later, but the host has 535.104.05"),
        (DETECTED, "incompatible", "the container does not support the GeForce RTX 4090"),
        (K80, "incompatible", "the container does not support the Tesla K80"),
        ("ERROR: No supported GPU(s) detected to run this container", "incompatible", "the container supports no GPU"),
        (CUFFT, "incompatible", "its cuFFT cannot make a plan on this GPU"),
        (CUFFT_11, "incompatible", "its cuFFT cannot make a plan on this GPU"),
        ("RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR", "incompatible", "its cuFFT cannot make a plan"),
        (TORCH_86, "incompatible", "its PyTorch was not built for sm_86"),
        (KERNEL_IMAGE, "incompatible", "nothing in the image was compiled for this GPU"),
        (ERROR_804, "incompatible", "the image needs a newer driver"),
        (INSUFFICIENT, "incompatible", "the host's driver is too old for the image's CUDA"),
        (CUBLAS, "incompatible", "its libraries do not support this GPU"),
        (CUDNN, "incompatible", "its libraries do not support this GPU"),
        (REQUIREMENT, "incompatible", "the image requires cuda>=11.0, but the host's driver is older"),
        (REQUIREMENT_ESCAPED, "incompatible", "the image requires cuda >= 9.0, but the host's driver is older"),
        ("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.", "incompatible",
         "the host's driver is too old for the code in the image"),
        ("Failed to initialize NVML: Unknown Error", "infrastructure", "the container has lost the driver"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "infrastructure",
         "the container has lost the driver (NVML: Driver/library version mismatch); see"),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", "infrastructure",
         "no GPU: nvml error: driver not loaded"),
        (XID_79, "infrastructure", "the GPU has fallen off the bus"),
        (XID_48, "infrastructure", "the driver reported Xid 48, a fault of the GPU"),
        ("step 7: killed by SIGABRT\nNVIDIA driver: Xid 119 during the trial", "infrastructure", "the driver reported"),
        ("NVML: a GPU is lost: it has fallen off the bus", "infrastructure", "the GPU has fallen off the bus"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "infrastructure", "the GPU reported an"),
        ("Error 802: system not yet initialized", "infrastructure", "the host's GPUs are not ready"),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", None, ""),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "infrastructure", "the GPU is busy"),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "infrastructure",
         "the container sees no GPU"),
        ("WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.", "infrastructure",
         "the container sees no GPU"),
        (OOM_TORCH, "oom", "out of GPU memory"),
        ("OOM when allocating tensor with shape[2,720,1280,64] and type float", "oom", "out of GPU memory"),
        ("failed to create cuFFT batched plan:2", "oom", "out of GPU memory"),
        ("RuntimeError: CUDA error: out of memory", "oom", "out of GPU memory"),
        ("failed to allocate 2.20G (2363687680 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "oom", ""),
        ("step 3: ValueError: shapes (3,) and (4,) not aligned", None, ""),
        ("NVIDIA driver: Xid 31 during the trial", None, ""),
        ("NVRM: Xid (PCI:0000:01:00): 13, Graphics SM Warp Exception", None, ""),
        ("failed to make cuFFT batched plan:8", None, ""),
        ("", None, ""),
    ],
)  # fmt: skip
def test_a_published_text_is_understood(text: str, kind: str | None, why: str) -> None:
    found = signature(text)
    assert (found and found.kind) == kind
    assert found is None or found.why.startswith(why)
    assert found is None or "{" not in found.why


def test_every_form_of_words_is_tried() -> None:
    """No text is hidden by one before it in the table."""
    texts = [value for name, value in globals().items() if name.isupper() and isinstance(value, str)]
    params = test_a_published_text_is_understood.pytestmark[0].args[1]  # type: ignore[attr-defined]
    met = {
        next((sign.pattern for sign in SIGNS if re.search(sign.pattern, text, re.I)), "")
        for text in [*texts, *(p[0] for p in params)]
    }
    assert {sign.pattern for sign in SIGNS} - met == set()


@pytest.mark.parametrize("text", [CUFFT, KERNEL_IMAGE, DRIVER, DETECTED, ERROR_804])
def test_what_made_steps_on_a_gpu_can_run_there(text: str) -> None:
    """A plan that cannot be made in step 3,000 shows the leak itself, not an old image."""
    assert signature(text, steps=3000) is None


@pytest.mark.parametrize("text", [XID_79, "Failed to initialize NVML: Unknown Error", OOM_TORCH])
def test_what_can_happen_at_any_time_counts_at_any_time(text: str) -> None:
    assert signature(text, steps=3000) == signature(text)


def trial(end: str, *, steps: int = 0, message: str = "step 1: killed by SIGABRT", output: str = "") -> Trial:
    fields = {"end": end, "message": message, "output_tail": output, "last_step": steps}
    return made_trial(**fields)


def test_a_command_that_is_sampled_in_time_made_no_steps() -> None:
    """It has a row every 0.1 s, even while it loads what then fails."""
    made = np.arange(1.0, 31.0)
    beats = Trace(step=made, columns={"rss_kib": made, "step_s": np.full(30, np.nan)})
    steps = Trace(step=made, columns={"rss_kib": made, "step_s": made})
    failed = trial("crash", output=CUFFT, steps=30)

    assert explain_failure(replace(failed, trace=beats)) is not None
    assert explain_failure(replace(failed, trace=steps)) is None


def test_only_a_failure_is_explained() -> None:
    for end in ("crash", "setup"):
        told = explain_failure(trial(end, output=CUFFT))
        assert told is not None
        assert (told.kind, told.why) == ("incompatible", "its cuFFT cannot make a plan on this GPU")
    assert explain_failure(trial("crash", output=CUFFT, steps=12)) is None
    assert explain_failure(trial("completed", output=DETECTED)) is None, "it warned, and ran"
    assert explain_failure(trial("oom", message=OOM_TORCH)) is None
    assert explain_failure(trial("hang", message="no progress", output=XID_79, steps=12)) is not None
