"""Image × GPU: what runs, what cannot, and what is not known. A cell left out by mistake is a blind spot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.compat import can_run, compatibility, compatibility_on, throttled
from harness.compat.image_on_gpu import is_data_centre, is_met
from harness.compat.image_requirements import Needs
from harness.model import Host, HostState, Look, Trace, Trial, Where
from harness.model.matrix import Gpu
from tests.unit.compat.cards import A100, H100, RTX_3090, RTX_4090, V100, described, gpu, image, ngc


@pytest.mark.parametrize(
    ("facts", "card", "why"),
    [
        (ngc("20.12"), RTX_3090, None),
        (ngc("20.12"), RTX_4090, "CUDA 11.1 has no code for sm_89"),
        (ngc("22.12"), RTX_3090, None),
        (ngc("22.12"), RTX_4090, None),
        (ngc("20.06"), RTX_4090, "CUDA 11.0 has no code for sm_89"),
        (ngc("22.06"), RTX_4090, "CUDA 11.7 has no code for sm_89"),
        (ngc("21.12"), RTX_4090, "CUDA 11.5 has no code for sm_89"),
        (ngc("20.12"), H100, "CUDA 11.1 has no code for sm_90"),
        (image(CUDA_VERSION="8.0.61"), V100, "CUDA 8.0 has no code for sm_70"),
        (image(CUDA_VERSION="13.0.1"), V100, "CUDA 13.0 no longer has code for sm_70"),
        (described(version="1.15.4+nv20.12"), RTX_4090, "CUDA 11.1 has no code for sm_89"),
        (image(CUDA_VERSION="11.1.1"), RTX_4090, "CUDA 11.1 has no code for sm_89"),
        (image(CUDA_VERSION="12.4.1"), gpu("NVIDIA GeForce RTX 5090", compute_capability="12.0"),
         "CUDA 12.4 has no code for sm_120"),
        (ngc("23.03"), gpu(driver="470.82", cuda="11.4"), "needs driver 530 or later, but the host has 470.82"),
        (image(CUDA_DRIVER_VERSION="525.60"), gpu(driver="470.82.01", cuda="11.4"),
         "needs driver 525.60 or later, but the host has 470.82.01"),
        (image(CUDA_VERSION="12.1"), gpu(driver="470.82.01", cuda="11.4"),
         "CUDA 12.1 needs a driver with CUDA 12; the host's driver is 470.82.01, with CUDA 11.4"),
        (image(NVIDIA_REQUIRE_CUDA="cuda>=12.4 brand=tesla,driver>=470,driver<471"), RTX_4090,
         "NVIDIA_REQUIRE_CUDA requires cuda>=12.4 brand=tesla,driver>=470,driver<471;"
         " the host's driver is 535.104.05, with CUDA 12.2"),
        (image(TORCH_CUDA_ARCH_LIST="5.2 6.0 6.1 7.0 7.5"), RTX_4090,
         "it has code for sm_52 sm_60 sm_61 sm_70 sm_75, but none for sm_89"),
    ],
)  # fmt: skip
def test_what_cannot_run_says_why(facts: Needs, card: Gpu, why: str | None) -> None:
    assert can_run(facts, card) == why


@pytest.mark.parametrize(
    ("facts", "card", "why"),
    [
        (described(reference="python:3.11"), RTX_4090, "nothing is known about its requirements"),
        (ngc("22.09"), RTX_4090, "CUDA 11.7 has no code for sm_89, but the table may be off by one minor"),
        (ngc("23.03"), gpu("NVIDIA A100-SXM4-40GB", compute_capability="8.0", driver="470.82", cuda="11.4"),
         "needs driver 530 or later, but the host has 470.82; a forward compatibility package"),
        (ngc("23.03"), gpu("NVIDIA RTX A6000", compute_capability="8.6", driver="470.82"), "needs driver 530 or later"),
        (ngc("21.03"), gpu("NVIDIA GeForce RTX 3090", compute_capability="8.6", driver="455.45", cuda="11.1"),
         "needs driver 460 or later, but the host has 455.45"),
        (ngc("20.12"), gpu(compute_capability=None), "the GPU's compute capability is not known"),
        (ngc("20.12"), gpu("NVIDIA Next", compute_capability="13.5"), "it is not known whether it has code for sm_135"),
        (ngc("22.12"), gpu(driver=None, cuda=None), "the driver's version is not known; 520 or later is required"),
        (image(CUDA_VERSION="11.1", TORCH_CUDA_ARCH_LIST="7.0 8.0+PTX"), H100, "only PTX can run on sm_90"),
        (image(CUDA_DRIVER_VERSION="520.61"), RTX_4090, "it is not known whether it has code for sm_89"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_no_reason_to_leave_out(facts: Needs, card: Gpu, why: str) -> None:
    found = compatibility(facts, card)
    assert (found.state, found.why[: len(why)]) == ("unknown", why)
    assert can_run(facts, card) is None


@pytest.mark.parametrize(
    ("facts", "card", "why"),
    [
        (ngc("22.12"), RTX_4090, "CUDA 11.8 on sm_89, driver 535.104.05, 520 required"),
        (ngc("20.12"), A100, "CUDA 11.1 on sm_80, driver 535.104.05, 455 required"),
        (ngc("22.12"), V100, "CUDA 11.8 on sm_70, driver 580.65.06, 520 required"),
        (image(CUDA_VERSION="12.9.1"), V100, "CUDA 12.9 on sm_70"),
        (image(CUDA_VERSION="11.1", TORCH_CUDA_ARCH_LIST="7.0;8.0,8.6+PTX"), RTX_4090, "CUDA 11.1 on sm_89"),
        (image(CUDA_VERSION="11.4.0", NVIDIA_REQUIRE_CUDA="cuda>=9.0"), RTX_3090, "CUDA 11.4 on sm_86"),
        (image(CUDA_VERSION="12.2", NVIDIA_REQUIRE_CUDA="cuda>=12.9", NVIDIA_DISABLE_REQUIRE="true"), RTX_4090,
         "CUDA 12.2 on sm_89"),
    ],
)  # fmt: skip
def test_what_runs(facts: Needs, card: Gpu, why: str) -> None:
    found = compatibility(facts, card)
    assert (found.state, found.why) == ("runs", why)


def test_names_of_families_in_a_list_of_architectures_say_nothing() -> None:
    facts = image(CUDA_VERSION="11.8", TORCH_CUDA_ARCH_LIST="Ampere")
    assert compatibility(facts, RTX_4090).state == "runs"


VERSIONS = st.tuples(st.integers(9, 13), st.integers(0, 9)).map(lambda pair: f"{pair[0]}.{pair[1]}")


@given(VERSIONS, st.sampled_from([RTX_3090, RTX_4090, H100]))
def test_a_newer_toolkit_has_no_less_code(cuda: str, card: Gpu) -> None:
    """Of two toolkits, the newer one never lacks code that the older one has."""
    major, minor = map(int, cuda.split("."))
    newer = replace(card, cuda="99.0", driver="999")
    if can_run(image(CUDA_VERSION=cuda), newer) is None:
        assert can_run(image(CUDA_VERSION=f"{major}.{minor + 1}"), newer) is None
        assert can_run(image(CUDA_VERSION=f"{major + 1}.0"), newer) is None


@given(st.integers(400, 600), st.integers(0, 200))
def test_a_driver_is_too_old_exactly_below_what_is_asked_for(major: int, minor: int) -> None:
    card = gpu(driver=f"{major}.{minor}")
    refused = can_run(image(CUDA_DRIVER_VERSION="525.60"), card) is not None
    assert refused is ((major, minor) < (525, 60))


@pytest.mark.parametrize(
    ("requirement", "card", "expected"),
    [
        ("cuda>=11.8", RTX_4090, True),
        ("cuda>=12.4", RTX_4090, False),
        ("cuda>=12.4 driver>=535", RTX_4090, True),
        ("cuda>=12.4 driver>=450,driver<451", RTX_4090, False),
        ("cuda>=12.4 brand=tesla,driver>=535", RTX_4090, False),
        ("cuda>=12.4 brand=tesla,driver>=535", A100, None),
        ("cuda>=12.4 brand=unknown,driver>=535", RTX_4090, None),
        ("arch>=8.0 , cuda >= 9.0", RTX_4090, True),
        ("cuda>=9.0", gpu(cuda=None), None),
        ("nonsense", RTX_4090, None),
        ("", RTX_4090, True),
    ],
)
def test_requirements_of_the_container_runtime(requirement: str, card: Gpu, expected: bool | None) -> None:
    assert is_met(requirement.replace(" , ", ","), card) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA GeForce RTX 4090", False), ("RTX 3090", False), ("NVIDIA TITAN V", False), ("GeForce GTX 1080", False),
        ("Tesla V100-SXM2-16GB", True), ("NVIDIA A100-SXM4-40GB", True), ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", True),
        ("NVIDIA H200", True), ("NVIDIA L40S", True), ("NVIDIA RTX A6000", None), ("Quadro RTX 8000", None),
        ("NVIDIA RTX 6000 Ada Generation", None), ("", None),
    ],
)  # fmt: skip
def test_which_cards_take_forward_compatibility(name: str, expected: bool | None) -> None:
    assert is_data_centre(name) is expected


NAMES = st.sampled_from(
    ["CUDA_VERSION", "CUDA_DRIVER_VERSION", "NVIDIA_REQUIRE_CUDA", "TORCH_CUDA_ARCH_LIST", "NVIDIA_DISABLE_REQUIRE",
     "NVIDIA_TENSORFLOW_VERSION", "TENSORFLOW_VERSION"]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=30), st.sampled_from(["11.8", "0", "1.15.5", "cuda>=", "8.9+PTX", "20.12", ",", ">=12"])
)


@given(st.dictionaries(NAMES, TEXTS), TEXTS, st.one_of(st.none(), TEXTS), st.one_of(st.none(), TEXTS))
def test_whatever_an_image_and_a_driver_say_there_is_an_answer(
    environment: dict[str, str], reference: str, capability: str | None, driver: str | None
) -> None:
    """Images are not trusted, and drivers report strange things."""
    facts = described(reference=reference, version=reference, environment=environment, labels=environment)
    card = gpu(reference, compute_capability=capability, driver=driver, cuda=driver)
    found = compatibility(facts, card)
    assert found.state in ("runs", "incompatible", "unknown")
    assert found.why


# ---------------------------------------------------------------- doctor


def host(name: str, *, gpus: str = "each", problem: str | None = None) -> HostState:
    where = Where(file="m.yaml", line=1, key=f"hosts.{name}")
    asked = (gpus,) if gpus not in ("none", "each", "all") else gpus
    return HostState(host=Host(name=name, engine="docker", gpus=asked, where=where), problem=problem)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "card", "image", "answer", "why"),
    [
        (host("old"), RTX_3090, "20.12", "runs", "CUDA 11.1 on sm_86"),
        (host("old"), RTX_3090, "22.12", "runs", ""),
        (host("new"), RTX_4090, "22.12", "runs", ""),
        (host("new"), RTX_4090, "20.12", "incompatible", "CUDA 11.1 has no code for sm_89"),
        (host("gone", problem="no answer"), None, "20.12", "unknown", "no answer"),
        (host("cpu", gpus="none"), None, "22.12", "runs", "without a GPU"),
        (host("bare"), None, "22.12", "unknown", "the host reported no GPU"),
    ],
)
def test_doctor_judges_an_image_on_a_host(
    state: HostState, card: Gpu | None, image: str, answer: str, why: str
) -> None:
    found = compatibility_on(state, card, ngc(image))
    assert found.state == answer
    assert why in found.why


# ---------------------------------------------------------------- a throttled card says nothing


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
