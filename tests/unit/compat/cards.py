"""GPUs for the tests of compatibility."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from harness.compat import needs_of
from harness.compat.image_requirements import Needs
from harness.model import Image, Pull, Where
from harness.model.matrix import Gpu


def gpu(name: str = "NVIDIA GeForce RTX 4090", **more: Any) -> Gpu:
    facts: dict[str, Any] = {"compute_capability": "8.9", "driver": "535.104.05", "cuda": "12.2", **more}
    return Gpu(uuid="GPU-1", name=name, index=0, **facts)


RTX_4090 = gpu()
RTX_3090 = gpu("NVIDIA GeForce RTX 3090", compute_capability="8.6")
V100 = gpu("Tesla V100-SXM2-32GB", compute_capability="7.0", driver="580.65.06", cuda="13.0")
A100 = gpu("NVIDIA A100-SXM4-40GB", compute_capability="8.0")
H100 = gpu("NVIDIA H100 80GB HBM3", compute_capability="9.0")


def described(
    reference: str = "", version: str = "", *,
    environment: Mapping[str, str] = MappingProxyType({}), labels: Mapping[str, str] = MappingProxyType({}),
) -> Needs:  # fmt: skip
    where = Where(file="m.yaml", line=1, key="images.s")
    image = Image(series="s", version=version, source=Pull(reference=reference), where=where)
    return needs_of(image, environment, labels)


def ngc(release: str) -> Needs:
    return described(f"nvcr.io/nvidia/tensorflow:{release}-tf1-py3", f"{release}-tf1-py3")


def image(**environment: str) -> Needs:
    return described(environment=environment)
