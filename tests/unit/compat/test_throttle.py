"""A trial on a throttled card says nothing about its image; a trial at the card's usual power limit does."""

from __future__ import annotations

import numpy as np
import pytest

from harness.compat import throttled
from harness.model import Look, Trace, Trial


def trial(*looks: Look) -> Trial:
    trace = Trace(step=np.arange(1.0, 5.0), columns={}, looks=looks)
    return Trial(cell_id="c", number=1, key="k", end="completed", trace=trace)


def look(step: int, *, clock: float | None = 2520, **more: float) -> Look:
    return Look(step=step, values={"gpu_clock_mhz": clock, **more})


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        ((look(500), look(1000, clock=1410, gpu_heat_share=0.4, gpu_temperature_c=88, gpu_reasons=0x20)),
         "the GPU's clock was held down by heat for 40% of the time before step 1000, 1410 MHz, 88 °C"),
        ((look(500, gpu_power_share=0.9, gpu_reasons=0x4), look(1000, clock=1900, gpu_power_share=1, gpu_reasons=0x4)),
         "the GPU's clock was held down by power for 100% of the time before step 1000, 1900 MHz"),
        ((look(500, gpu_power_share=0.2, gpu_reasons=0x80),),
         "the GPU's clock was held down by power for 20% of the time before step 500, 2520 MHz"),
        ((look(500, clock=None, gpu_heat_share=1.0),),
         "the GPU's clock was held down by heat for 100% of the time before step 500"),
        ((look(500, gpu_power_share=1.0, gpu_reasons=0x4), look(1000, clock=2400, gpu_power_share=1, gpu_reasons=4)),
         None),
        ((look(500), look(1000, clock=1410)), None),
        ((look(500, gpu_heat_share=0.04, gpu_reasons=0x20),), None),
        ((look(500, gpu_heat_share=0.0, gpu_power_share=0.0),), None),
        ((Look(step=500),), None),
        ((), None),
    ],
)  # fmt: skip
def test_heat_and_power_are_told_from_a_usual_cap(looks: tuple[Look, ...], why: str | None) -> None:
    assert throttled(trial(*looks)) == why


def test_a_trial_without_a_trace_was_not_held_down() -> None:
    assert throttled(Trial(cell_id="c", number=1, key="k", end="setup")) is None
