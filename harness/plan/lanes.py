"""Derives the lanes of a host from the entry `gpus:` of the matrix and the GPUs that its driver lists. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import InfrastructureError
from harness.model import Host, Lane
from harness.model.matrix import Gpu

MOST_GPUS = 64  # of a host: a larger number is not an index


def choose_lanes(host: Host, listed: Sequence[Gpu]) -> tuple[Lane, ...]:
    """Return the lanes of `host`: one without a GPU (`none`), one with all GPUs (`all`), or one per GPU (`each`, or a
    list of entries).

    An entry is an index, a UUID or MIG id (or its beginning), or a name in any case: the whole name of a card, else a
    part. For an entry that does not match exactly one GPU, raises InfrastructureError with the GPUs of the host, not a
    usage error: a card may have fallen off the bus, and the other hosts go on.
    """
    if host.gpus == "none":
        return (Lane(host=host),)
    if not listed:
        raise InfrastructureError(
            f"{host.where}.gpus: host {host.name} has no GPU; see `nvidia-smi` there, or use none"
        )
    if host.gpus == "all":
        return (Lane(host=host, gpu="all", gpus=tuple(listed)),)
    chosen = list(listed) if host.gpus == "each" else _chosen(host, host.gpus, listed)
    label = _label_in_pool if host.pool or host.machine else _label
    return tuple(Lane(host=host, gpu=label(gpu, listed), gpus=(gpu,)) for gpu in chosen)


def _chosen(host: Host, entries: Sequence[str], listed: Sequence[Gpu]) -> list[Gpu]:
    chosen: dict[str, str] = {}
    for number, entry in enumerate(entries):
        place = f"{host.where}.gpus[{number}]"
        gpu = _named(entry, listed, place=place, host=host)
        if gpu.uuid in chosen:
            raise InfrastructureError(
                f"{chosen[gpu.uuid]!r} and {entry!r} are the same GPU, {gpu}; keep one", place=place
            )
        chosen[gpu.uuid] = entry
    return [gpu for uuid in chosen for gpu in listed if gpu.uuid == uuid]


def _named(entry: str, listed: Sequence[Gpu], *, place: str, host: Host) -> Gpu:
    """Return the only GPU that `entry` means. Raises InfrastructureError."""
    matching = _meant(entry.strip(), listed)
    if len(matching) == 1:
        return matching[0]
    if not matching:
        there = "; ".join(map(str, listed))
        raise InfrastructureError(f"no GPU matches {entry!r} on host {host.name}; it has: {there}", place=place)
    several = "; ".join(map(str, matching))
    raise InfrastructureError(
        f"{entry!r} matches {len(matching)} GPUs on host {host.name}: {several}; name one by its UUID", place=place
    )


def _meant(text: str, listed: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs that a text can mean: `0` is an index; `4090` is part of a name."""
    if text.startswith(("GPU-", "MIG-")):
        whole = [gpu for gpu in listed if text in (gpu.uuid, gpu.parent)]
        return whole or [gpu for gpu in listed if len(text) > 4 and gpu.uuid.startswith(text)]
    numbered = [gpu for gpu in listed if text == str(gpu.index)]
    if numbered or (text.isdecimal() and int(text) < MOST_GPUS):
        return numbered
    named = [gpu for gpu in listed if text.lower() in gpu.name.lower()]
    return [gpu for gpu in named if _is_whole(text.lower(), gpu)] or named


def _is_whole(text: str, gpu: Gpu) -> bool:
    """Return whether a text is a GPU's whole name, with or without the vendor: not `gtx 1080` for a `GTX 1080 Ti`."""
    return gpu.name.lower().endswith(text) and text.endswith(gpu.short_name.lower())


def _label(gpu: Gpu, listed: Sequence[Gpu]) -> str:
    """Return `RTX 4090`; for several cards of one name `RTX 4090 GPU-1a2b3c4d`, because an index may change."""
    twins = [other.uuid for other in listed if other.short_name == gpu.short_name]
    if len(twins) == 1:
        return gpu.short_name
    short = gpu.uuid[:12]
    return f"{gpu.short_name} {short if sum(uuid.startswith(short) for uuid in twins) == 1 else gpu.uuid}"


def _label_in_pool(gpu: Gpu, listed: Sequence[Gpu]) -> str:
    """Return `RTX 4090`; for several cards of one name `RTX 4090 #2`, the second of each machine."""
    twins = [other.uuid for other in listed if other.short_name == gpu.short_name]
    return gpu.short_name if len(twins) == 1 else f"{gpu.short_name} #{twins.index(gpu.uuid) + 1}"
