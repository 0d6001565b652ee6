"""Makes the host × image table of `harness doctor`: which images can run where, before anything is pulled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.compat.images import DescribedImage
from harness.compat.rules import Compatibility, CompatibilityState, compatibility
from harness.compat.table import CompatibilityTable
from harness.model import HostState
from harness.model.gpus import Gpu


@dataclass(frozen=True, kw_only=True)
class DoctorRow:
    """One image on one GPU of one host. `gpu` is None for a host that uses none, or whose GPUs are unknown."""

    host: str
    gpu: Gpu | None
    image: str
    state: CompatibilityState
    why: str


def doctor_rows(
    hosts: Sequence[HostState],
    images: Mapping[str, DescribedImage],
    *,
    gpus: Mapping[str, Sequence[Gpu]],
    table: CompatibilityTable | None = None,
) -> tuple[DoctorRow, ...]:
    """Return a row for every host, GPU and image, in their order. `images` has the names of the matrix as keys; `gpus`
    has the GPUs that the lanes of each host use, by host name.
    """
    rows = []
    for state in hosts:
        for gpu in gpus.get(state.host.name) or (None,):
            for name, image in images.items():
                found = _found(state, gpu, image, table)
                rows.append(DoctorRow(host=state.host.name, gpu=gpu, image=name, state=found.state, why=found.why))
    return tuple(rows)


def _found(state: HostState, gpu: Gpu | None, image: DescribedImage, table: CompatibilityTable | None) -> Compatibility:
    if state.problem is not None:
        return Compatibility(state="unknown", why=state.problem)
    if gpu is not None:
        return compatibility(image, gpu, table=table)
    if state.host.gpus == "none":
        return Compatibility(state="runs", why="without a GPU")
    return Compatibility(state="unknown", why="the host reported no GPU")
