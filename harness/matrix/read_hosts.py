"""Reads the file's hosts into the model's hosts."""

from __future__ import annotations

from dataclasses import replace

from harness import model
from harness.matrix import shape
from harness.matrix.problems import Context, KeyPath, shown
from harness.matrix.shape import MatrixFile
from harness.model import Where

SLURM_KEYS = ("container", "select", "nodes", "hold", "images")
NO_MACHINES = {
    "process": "process is only this machine, but a pool has several machines; write engine: process",
    "slurm": "a cluster cannot be in a pool; write engine: slurm, and the number of `nodes`",
}
"""The message for each engine that cannot be in a pool."""
DEFAULT_NAME = "local"
"""Name of the host in a matrix without `hosts:`. Stored runs contain it."""


def read_hosts(file: MatrixFile, context: Context) -> tuple[model.Host, ...]:
    """Return all hosts, one for each named node of a cluster; without `hosts:`, this machine without containers."""
    if file.hosts is None:
        where = Where(file=context.file, line=1, key="hosts")
        return (model.Host(name=DEFAULT_NAME, engine="process", gpus="none", where=where),)
    hosts: list[model.Host] = []
    for name, entry in file.hosts.items():
        host, nodes = _host(name, entry, context), _nodes(entry)
        if entry.engine == "slurm":
            host = replace(host, request=_request(entry, ("hosts", name), context))
        if host.request is None or not nodes:
            hosts.append(host)
        else:
            hosts += [replace(host, name=f"{name}.{n}", request=replace(host.request, node=n)) for n in nodes]
    return tuple(hosts)


def names_of(file: MatrixFile) -> dict[str, tuple[str, ...]]:
    """Return the hosts that each name stands for: one for each named node of a cluster, else the host itself."""
    if file.hosts is None:
        return {DEFAULT_NAME: (DEFAULT_NAME,)}
    groups = {name: tuple(f"{name}.{node}" for node in _nodes(entry)) or (name,) for name, entry in file.hosts.items()}
    return {**{host: (host,) for group in groups.values() for host in group}, **groups}


def _nodes(entry: shape.HostEntry) -> list[str]:
    return entry.nodes if isinstance(entry.nodes, list) else []


def _host(name: str, entry: shape.HostEntry, context: Context) -> model.Host:
    key: KeyPath = ("hosts", name)
    engines = () if isinstance(entry.engine, str) else tuple(entry.engine)
    names = [model.machine_name(engine) for engine in engines]
    for number, engine in enumerate(engines):
        first = names.index(names[number])
        if engine in NO_MACHINES:
            context.add((*key, "engine", number), NO_MACHINES[engine])
        elif first < number:
            context.add((*key, "engine", number), f"{shown(engine)} is the same machine as engine[{first}]; keep one")
    pool = engines
    if entry.engine != "slurm":
        for each in (each for each in SLURM_KEYS if getattr(entry, each) is not None):
            context.add((*key, each), f"is for engine: slurm, not {entry.engine}; remove it")
    elif isinstance(entry.nodes, int) and entry.nodes > 1:
        pool = ("slurm",) * entry.nodes
    gpus = entry.gpus if isinstance(entry.gpus, str) else tuple(entry.gpus)
    if not isinstance(gpus, str) and len(set(gpus)) < len(gpus):
        context.add((*key, "gpus"), "a GPU is listed twice; keep one")
    for number, gpu in enumerate(gpus) if pool and not isinstance(gpus, str) else ():
        if gpu.startswith(("GPU-", "MIG-")):
            text = f"{shown(gpu)} is in one machine, but this host is a pool; name the GPU by its index or its name"
            context.add((*key, "gpus", number), text)
    if engines and entry.parallel not in ("auto", False):
        text = "the machines of a pool run at the same time, and the cards of each run one after the other; remove it"
        context.add((*key, "parallel"), text)
    return model.Host(
        name=name,
        engine=", ".join(engines) or str(entry.engine),
        gpus=gpus,
        where=context.where(*key),
        parallel=False if entry.parallel == 1 and entry.parallel is not True else entry.parallel,
        disk_bytes=entry.disk,
        pool=pool,
    )


def _request(entry: shape.HostEntry, key: KeyPath, context: Context) -> model.NodeRequest:
    nodes, hold = _nodes(entry), entry.hold or shape.HoldEntry()
    for position, node in enumerate(nodes):
        if node in nodes[:position]:
            context.add((*key, "nodes", position), f"{node} is listed twice; keep one")
    if entry.parallel not in ("auto", False):
        context.add((*key, "parallel"), "is not for engine: slurm; ask for several nodes instead")
    chosen = {} if entry.select is None else entry.select.model_dump(by_alias=True, exclude_none=True)
    return model.NodeRequest(
        container=entry.container or "none",
        select=tuple(chosen.items()),
        time_s=hold.time,
        wait_s=hold.wait,
        exclusive=hold.exclusive,
        images=None if entry.images is None else context.folder / entry.images,
    )
