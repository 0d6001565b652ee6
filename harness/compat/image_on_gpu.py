"""Judges, before anything is started, whether an image runs on a GPU: yes, no, or unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.compat.gpu_classes import is_data_centre
from harness.compat.image_requirements import DescribedImage, Needs, needs_of
from harness.compat.ngc_table import shipped
from harness.compat.requirements import is_met
from harness.compat.versions import Numbers, major_minor, numbers, sm
from harness.model import HostState
from harness.model.matrix import Gpu

CompatibilityState = Literal["runs", "incompatible", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Compatibility:
    """Whether an image runs on a GPU, with the reason in a few plain words."""

    state: CompatibilityState
    why: str


def can_run(image: DescribedImage, gpu: Gpu) -> str | None:
    """Return why `image` cannot run on `gpu` ("CUDA 11.1 has no code for sm_89"); None if it can or may."""
    result = compatibility(image, gpu)
    return result.why if result.state == "incompatible" else None


def compatibility_on(state: HostState, gpu: Gpu | None, image: DescribedImage) -> Compatibility:
    """Judge `image` on a host; `gpu` is None if the host uses no GPU or reported none."""
    if state.problem is not None:
        return _unknown(state.problem)
    if gpu is not None:
        return compatibility(image, gpu)
    if state.host.gpus == "none":
        return Compatibility(state="runs", why="without a GPU")
    return _unknown("the host reported no GPU")


def compatibility(image: DescribedImage, gpu: Gpu) -> Compatibility:
    """Judge `image` on `gpu` by the first check that finds it incompatible, else by the first that is unknown."""
    needs = needs_of(image)
    if not needs.known:
        return _unknown("nothing is known about its requirements")
    checks = (_requirements(needs, gpu), _driver(needs, gpu), _runtime(needs, gpu), _code(needs, gpu))
    objections = [check for check in checks if check is not None]
    forbidden = [check for check in objections if check.state == "incompatible"]
    return (forbidden or objections or [Compatibility(state="runs", why=_met(needs, gpu))])[0]


def _unknown(why: str) -> Compatibility:
    return Compatibility(state="unknown", why=why)


def _incompatible(why: str) -> Compatibility:
    return Compatibility(state="incompatible", why=why)


def _met(needs: Needs, gpu: Gpu) -> str:
    cuda = (
        f"CUDA {major_minor(needs.cuda)} on {sm(gpu.compute_capability)}"
        if needs.cuda and gpu.compute_capability
        else ""
    )
    driver = f"driver {gpu.driver}, {needs.driver} required" if needs.driver else ""
    return ", ".join(part for part in (cuda, driver) if part) or "its requirements are met"


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
    wanted = numbers(least) or ()
    if newest[:2] >= wanted:
        return None
    if not needs.said_cuda and _next_minor(newest) >= wanted:
        return _unknown(f"{lacks}, but the table may be off by one minor version, and {major_minor(least)} has it")
    return _incompatible(lacks)


def _built_code(needs: Needs, capability: str) -> Compatibility | None:
    """Check the listed code: machine code runs on later GPUs of the same major version, PTX on any later GPU."""
    card = numbers(capability) or ()
    listed = [(numbers(built.capability) or (), built.ptx) for built in needs.architectures]
    if any(built[:1] == card[:1] and built <= card for built, _ in listed):
        return None
    if any(ptx and built <= card for built, ptx in listed):
        return _unknown(f"only PTX can run on {sm(capability)}: it is compiled at the first start, or refused")
    names = " ".join(sm(built.capability) for built in needs.architectures)
    return _incompatible(f"it has code for {names}, but none for {sm(capability)}")


def _next_minor(version: Numbers) -> Numbers:
    major, minor = (*version, 0, 0)[:2]
    return (major, minor + 1)


def _host(gpu: Gpu) -> str:
    cuda = f", with CUDA {gpu.cuda}" if gpu.cuda else ""
    return f"the host's driver is {gpu.driver or 'of unknown version'}{cuda}"
