"""A matrix of many kinds of series, hosts and scenarios, and what is planned of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.model import (
    Cell,
    Host,
    Image,
    Install,
    Lane,
    Matrix,
    Pull,
    Scalar,
    Scenario,
    Series,
    Source,
    Variant,
    Where,
)
from harness.model.matrix import Gpu

WHERE = Where(file="matrix.yaml", line=1, key="x")
BARE = Install(base="", python=None, packages=())


def series(name: str, *versions: str, install: bool = False) -> Series:
    def source(version: str) -> Install | Pull:
        if install:
            return Install(base="python:3.11", python=None, packages=(f"{name}=={version}",))
        return Pull(reference=f"a/{name}:{version}")

    images = tuple(Image(series=name, version=version, source=source(version), where=WHERE) for version in versions)
    return Series(name=name, images=images, where=WHERE)


def scenario(name: str, *, series: tuple[str, ...] = (), hosts: tuple[str, ...] = (), **params: Any) -> Scenario:
    return Scenario(name=name, where=WHERE, command=("a",), params=tuple(params.items()), series=series, hosts=hosts)


def host(name: str, engine: str = "docker", gpus: Any = "none", *, parallel: bool = False) -> Host:
    return Host(name=name, engine=engine, gpus=gpus, where=WHERE, parallel=parallel)


MATRIX = Matrix(
    name="m",
    path=Path("matrix.yaml"),
    series=(series("tags", "1", "2"), series("numpy", "2.0.0", "2.0.1", install=True)),
    hosts=(host("here"), host("venv", "process")),
    scenarios=(scenario("signal", op=("rfft", "fft"), n=(1, 2)), scenario("tool", series=("numpy",), hosts=("venv",))),
    exclude=({"series": "numpy", "op": "fft", "image": "2.0.1", "why": "known"},),
)


def a_cell(
    version: str = "1",
    *,
    on: Host | None = None,
    gpu: str | None = None,
    gpus: tuple[Gpu, ...] = (),
    image: Image | None = None,
    source: Source = BARE,
    params: tuple[tuple[str, Scalar], ...] = (),
    name: str = "s",
    **fields: Any,
) -> Cell:
    """Return a cell of this image, or of a version from this source; `fields` are those of its scenario."""
    return Cell(
        image=image or Image(series="s", version=version, source=source, where=WHERE),
        lane=Lane(host=on or host("here", "process"), gpu=gpu, gpus=gpus),
        variant=Variant(scenario=Scenario(name=name, where=WHERE, **fields), params=params),
    )


class Opened:
    facts: dict[str, Any]

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
