"""Reads the file's hosts into the model's hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness import model
from harness.matrix import shape
from harness.matrix.problems import Context, KeyPath, shown
from harness.matrix.shape import MatrixFile
from harness.model import Where

UUIDS = ("GPU-", "MIG-")
SLURM_KEYS = ("container", "select", "nodes", "hold", "images")
NO_MACHINES = {
    "process": "process is only this machine, but a pool has several machines; write engine: process",
    "slurm": "a cluster cannot be in a pool; write engine: slurm, and the number of `nodes`",
}
"""The message for each engine that cannot be in a pool."""
DEFAULT_NAME = "local"
"""Name of the host in a matrix without `hosts:`. Stored runs contain it."""


def read_hosts(file: MatrixFile, context: Context) -> tuple[model.Host, ...]:
    """Return all hosts; without `hosts:`, this machine without containers."""
    if file.hosts is None:
        where = Where(file=context.file, line=1, key="hosts")
        return (model.Host(name=DEFAULT_NAME, engine="process", gpus="none", where=where),)
    return tuple(host for name, entry in file.hosts.items() for host in _hosts(name, entry, context))


def names_of(file: MatrixFile) -> dict[str, tuple[str, ...]]:
    """Return the hosts that each name stands for: one for each named node of a cluster, else the host itself."""
    if file.hosts is None:
        return {DEFAULT_NAME: (DEFAULT_NAME,)}
    groups = {name: tuple(f"{name}.{node}" for node in _nodes(entry)) or (name,) for name, entry in file.hosts.items()}
    return {**{host: (host,) for group in groups.values() for host in group}, **groups}


def _nodes(entry: shape.HostEntry) -> list[str]:
    return entry.nodes if isinstance(entry.nodes, list) else []


def _hosts(name: str, entry: shape.HostEntry, context: Context) -> list[model.Host]:
    """Return the host of an entry, or one for each of its named nodes."""
    host = _host(name, entry, context)
    if entry.engine != "slurm":
        for key in SLURM_KEYS:
            if getattr(entry, key) is not None:
                context.add(("hosts", name, key), f"is for engine: slurm, not {entry.engine}; remove it")
        return [host]
    asked = _request(name, entry, context)
    nodes = _nodes(entry)
    if isinstance(entry.nodes, int) and entry.nodes > 1:
        if not isinstance(host.gpus, str):
            _check_no_uuids(host.gpus, ("hosts", name, "gpus"), context)
        return [replace(host, request=asked, pool=("slurm",) * entry.nodes)]
    if not nodes:
        return [replace(host, request=asked)]
    return [replace(host, name=f"{name}.{node}", request=replace(asked, node=node)) for node in nodes]


def _request(name: str, entry: shape.HostEntry, context: Context) -> model.NodeRequest:
    key, hold = ("hosts", name), entry.hold or shape.HoldEntry()
    for position, node in enumerate(_nodes(entry)):
        if _nodes(entry).index(node) < position:
            context.add((*key, "nodes", position), f"{node} is listed twice; keep one")
    if entry.parallel not in ("auto", False):
        context.add((*key, "parallel"), "is not for engine: slurm; ask for several nodes instead")
    chosen = {} if entry.select is None else entry.select.model_dump(by_alias=True, exclude_none=True)
    images = None if entry.images is None else context.folder / entry.images
    return model.NodeRequest(
        container=entry.container or "none",
        select=tuple(chosen.items()),
        time_s=hold.time,
        wait_s=hold.wait,
        exclusive=hold.exclusive,
        images=images,
    )


def _host(name: str, host: shape.HostEntry, context: Context) -> model.Host:
    key = ("hosts", name)
    pool = () if isinstance(host.engine, str) else tuple(host.engine)
    first: dict[str, int] = {}
    for number, engine in enumerate(pool):
        earlier = first.setdefault(model.machine_name(engine), number)
        complaint = NO_MACHINES.get(engine)
        if earlier < number and not complaint:
            complaint = f"{shown(engine)} is the same machine as engine[{earlier}]; keep one"
        if complaint:
            context.add((*key, "engine", number), complaint)
    gpus = host.gpus if isinstance(host.gpus, str) else tuple(host.gpus)
    if len(set(gpus)) < len(gpus) and not isinstance(gpus, str):
        context.add((*key, "gpus"), "a GPU is listed twice; keep one")
    if pool and not isinstance(gpus, str):
        _check_no_uuids(gpus, (*key, "gpus"), context)
    if pool and host.parallel not in ("auto", False):
        text = "the machines of a pool run at the same time, and the cards of each run one after the other; remove it"
        context.add((*key, "parallel"), text)
    return model.Host(
        name=name,
        engine=", ".join(pool) or str(host.engine),
        gpus=gpus,
        where=context.where(*key),
        parallel=False if host.parallel == 1 and host.parallel is not True else host.parallel,
        disk_bytes=host.disk,
        pool=pool,
    )


def _check_no_uuids(gpus: Sequence[str], key: KeyPath, context: Context) -> None:
    for number, entry in enumerate(gpus):
        if entry.startswith(UUIDS):
            text = f"{shown(entry)} is in one machine, but this host is a pool; name the GPU by its index or its name"
            context.add((*key, number), text)
