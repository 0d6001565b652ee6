"""Detects GPU throttling: clocks that were reduced in a trial, so that its step times say nothing about the image."""

from __future__ import annotations

from harness.model import Look, Trial

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
    clocks = [look.gpu_clock_mhz for look in looks if look.gpu_clock_mhz is not None]
    highest = max(clocks, default=0.0)
    reasons = (_reason(look, highest_mhz=highest) for look in looks)
    return next((reason for reason in reasons if reason is not None), None)


def _reason(look: Look, *, highest_mhz: float) -> str | None:
    if (look.gpu_heat_share or 0.0) >= LEAST_SHARE:
        return _words("heat", look.gpu_heat_share or 0.0, look)
    if (look.gpu_power_share or 0.0) < LEAST_SHARE:
        return None
    braked = int(look.gpu_reasons or 0) & HARDWARE
    fell = look.gpu_clock_mhz is not None and look.gpu_clock_mhz < CLOCK_FELL * highest_mhz
    return _words("power", look.gpu_power_share or 0.0, look) if braked or fell else None


def _words(cause: str, share: float, look: Look) -> str:
    clock = f", {look.gpu_clock_mhz:.0f} MHz" if look.gpu_clock_mhz is not None else ""
    heat = f", {look.gpu_temperature_c:.0f} °C" if look.gpu_temperature_c is not None else ""
    return f"the GPU's clock was held down by {cause} for {share:.0%} of the time before step {look.step}{clock}{heat}"
