"""torch 2.6.0 and 2.7.0 with their CUDA packages, by the metadata that PyPI has for them; nothing is installed."""

from __future__ import annotations

from dataclasses import replace

from tests.players.narrowing import coupled, inventory

MARKER = 'platform_system == "Linux" and platform_machine == "x86_64"'
OLD = {
    "nvidia-cuda-nvrtc-cu12": "12.4.127", "nvidia-cuda-runtime-cu12": "12.4.127", "nvidia-cuda-cupti-cu12": "12.4.127",
    "nvidia-cudnn-cu12": "9.1.0.70", "nvidia-cublas-cu12": "12.4.5.8", "nvidia-cufft-cu12": "11.2.1.3",
    "nvidia-curand-cu12": "10.3.5.147", "nvidia-cusolver-cu12": "11.6.1.9", "nvidia-cusparse-cu12": "12.3.1.170",
    "nvidia-cusparselt-cu12": "0.6.2", "nvidia-nccl-cu12": "2.21.5", "nvidia-nvtx-cu12": "12.4.127",
    "nvidia-nvjitlink-cu12": "12.4.127", "triton": "3.2.0",
}  # fmt: skip
NEW = {
    "nvidia-cuda-nvrtc-cu12": "12.6.77", "nvidia-cuda-runtime-cu12": "12.6.77", "nvidia-cuda-cupti-cu12": "12.6.80",
    "nvidia-cudnn-cu12": "9.5.1.17", "nvidia-cublas-cu12": "12.6.4.1", "nvidia-cufft-cu12": "11.3.0.4",
    "nvidia-curand-cu12": "10.3.7.77", "nvidia-cusolver-cu12": "11.7.1.2", "nvidia-cusparse-cu12": "12.5.4.2",
    "nvidia-cusparselt-cu12": "0.6.3", "nvidia-nccl-cu12": "2.26.2", "nvidia-nvtx-cu12": "12.6.77",
    "nvidia-nvjitlink-cu12": "12.6.85", "nvidia-cufile-cu12": "1.11.1.6", "triton": "3.3.0",
}  # fmt: skip
OTHERS = {
    "nvidia-cudnn-cu12": ("nvidia-cublas-cu12",),
    "nvidia-cusolver-cu12": ("nvidia-cublas-cu12", "nvidia-nvjitlink-cu12", "nvidia-cusparse-cu12"),
    "nvidia-cusparse-cu12": ("nvidia-nvjitlink-cu12",),
}
A = inventory(
    {
        **{name: (version, OTHERS.get(name, ())) for name, version in OLD.items()},
        "torch": (
            "2.6.0",
            (
                "typing-extensions (>=4.10.0)",
                *(f"{name} (=={version}) ; {MARKER}" for name, version in OLD.items()),
                'setuptools ; python_version >= "3.12"',
                'sympy (==1.13.1) ; python_version >= "3.9"',
            ),
        ),
        "sympy": ("1.13.1", ("mpmath <1.4,>=1.1.0",)),
        "mpmath": ("1.3.0", ()),
        "typing-extensions": ("4.12.0", ()),
        "numpy": ("2.1.0", ()),
    }
)
B = inventory(
    {
        **{name: (version, OTHERS.get(name, ())) for name, version in NEW.items()},
        "nvidia-cufft-cu12": (NEW["nvidia-cufft-cu12"], ("nvidia-nvjitlink-cu12",)),
        "triton": ("3.3.0", ("setuptools>=40.8.0",)),
        "torch": (
            "2.7.0",
            (
                "typing-extensions>=4.10.0",
                'setuptools; python_version >= "3.12"',
                "sympy>=1.13.3",
                *(f"{name}=={version}; {MARKER}" for name, version in NEW.items()),
            ),
        ),
        "sympy": ("1.14.0", ("mpmath<1.4,>=1.1.0",)),
        "mpmath": ("1.3.0", ()),
        "typing-extensions": ("4.13.0", ()),
        "numpy": ("2.2.0", ()),
        "setuptools": ("80.0.0", ()),
    }
)


def test_torch_goes_with_what_it_pins_and_the_rest_goes_alone() -> None:
    coupling = coupled(A, B)
    members = {group.id: {each.name for each in group.components} for group in coupling.groups}
    (torch,) = [names for names in members.values() if "torch" in names]
    assert torch == {"torch", "triton", "sympy", *OLD} - {"nvidia-nccl-cu12"}
    alone = {"nvidia-nccl-cu12", "nvidia-cufile-cu12", "setuptools", "typing-extensions", "numpy"}
    assert [names for names in members.values() if names != torch] == [{name} for name in members if name in alone]
    assert "requires" in next(group.together for group in coupling.groups if len(group.components) > 1)


def test_a_torch_that_brings_its_first_nccl_needs_it() -> None:
    """Its pin is not kept, so that NCCL is swapped alone, but without any NCCL it does not start."""
    without = replace(A, distributions={name: own for name, own in A.distributions.items() if "nccl" not in name})
    (torch,) = [group.id for group in coupled(without, B).groups if len(group.components) > 1]
    assert (torch, "nvidia-nccl-cu12") in coupled(without, B).pairs


def test_what_the_newer_torch_brings_is_needed_by_it_alone() -> None:
    """The old torch also runs with cuFile and setuptools; the new one cannot run without them."""
    coupling = coupled(A, B)
    (torch,) = [group.id for group in coupling.groups if len(group.components) > 1]
    assert coupling.pairs == {(torch, "nvidia-cufile-cu12"), (torch, "setuptools")}
