"""Reads the file's hosts into the model's hosts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from harness import model
from harness.matrix import keys
from harness.matrix.context import Context
from harness.matrix.problems import KeyPath, shown
from harness.model import Where

ENGINE = re.compile(r"docker|process|context:[A-Za-z0-9][A-Za-z0-9_.+-]*|(?:ssh|tcp)://[^\s/]+(?:/\S*)?|unix:///\S+")
ALLOWED = "docker, process, context:NAME, ssh://[USER@]HOST, tcp://HOST:PORT, unix:///PATH"
UUIDS = ("GPU-", "MIG-")
DEFAULT_NAME = "local"
"""Name of the host in a matrix without `hosts:`. Stored runs contain it."""


def read_hosts(file: keys.MatrixFile, context: Context) -> tuple[model.Host, ...]:
    """Return all hosts; without `hosts:`, this machine without containers."""
    if file.hosts is None:
        where = Where(file=context.document.file, line=1, key="hosts")
        return (model.Host(name=DEFAULT_NAME, engine="process", gpus="none", where=where),)
    return tuple(_host(name, host, context) for name, host in file.hosts.items())


def _host(name: str, host: keys.HostEntry, context: Context) -> model.Host:
    key = ("hosts", name)
    pool = () if isinstance(host.engine, str) else tuple(host.engine)
    if isinstance(host.engine, str):
        if complaint := _complaint(host.engine):
            context.problems.add((*key, "engine"), complaint)
    else:
        _check_pool(host.engine, (*key, "engine"), context)
    gpus = host.gpus if isinstance(host.gpus, str) else tuple(host.gpus)
    if len(set(gpus)) < len(gpus) and not isinstance(gpus, str):
        context.problems.add((*key, "gpus"), "a GPU is listed twice; keep one")
    if pool and not isinstance(gpus, str):
        _check_no_uuids(gpus, (*key, "gpus"), context)
    if pool and host.parallel:
        text = "the machines of a pool run at the same time, and the lanes of each one after the other; remove it"
        context.problems.add((*key, "parallel"), text)
    return model.Host(
        name=name,
        engine=", ".join(pool) or str(host.engine),
        gpus=gpus,
        where=context.document.where(*key),
        parallel=host.parallel,
        disk_bytes=host.disk,
        pool=pool,
    )


def _check_pool(engines: Sequence[str], key: KeyPath, context: Context) -> None:
    """Add a problem for each machine of a pool that cannot be in it."""
    seen: dict[str, int] = {}
    for number, engine in enumerate(engines):
        name = model.machine_name(engine)
        if engine == "process":
            complaint: str | None = "process is this machine alone, and a pool is of several; write engine: process"
        elif complaint := _complaint(engine):
            pass
        elif name in seen:
            complaint = f"{shown(engine)} is the machine of engine[{seen[name]}] again; keep one"
        if complaint:
            context.problems.add((*key, number), complaint)
        seen.setdefault(name, number)


def _check_no_uuids(gpus: Sequence[str], key: KeyPath, context: Context) -> None:
    for number, entry in enumerate(gpus):
        if entry.startswith(UUIDS):
            text = f"{shown(entry)} is in one machine, and this host is a pool; name the GPU by its index or its name"
            context.problems.add((*key, number), text)


def _complaint(engine: str) -> str | None:
    """Return what is wrong with an engine's address, None if nothing is."""
    if not ENGINE.fullmatch(engine):
        return f"unknown engine {shown(engine)}; allowed: {ALLOWED}"
    try:
        address = urlsplit(engine)
        port = address.port
    except ValueError as error:  # "Port out of range 0-65535", "Invalid IPv6 URL"
        return f"{shown(engine)} is no address: {error}; allowed: {ALLOWED}"
    if address.password is not None:  # do not show it: it is a secret
        return "a password does not belong in an address; use a key, and ssh://USER@HOST"
    if address.scheme == "tcp" and not (address.hostname and port):
        return f"{shown(engine)} names no host or port; write tcp://HOST:PORT, such as tcp://gpu-1:2376"
    if address.scheme == "ssh" and not address.hostname:
        return f"{shown(engine)} names no host; write ssh://[USER@]HOST"
    return None
