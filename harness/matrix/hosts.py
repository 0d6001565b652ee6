"""Hosts of the file -> hosts of the model."""

from __future__ import annotations

import re

from harness import model
from harness.matrix import shape
from harness.matrix.context import Context
from harness.matrix.problems import shown
from harness.model import Where

ENGINE = re.compile(r"docker|process|context:[A-Za-z0-9][A-Za-z0-9_.+-]*|(?:ssh|tcp)://[^\s/]+(?:/\S*)?|unix:///\S+")
ALLOWED = "docker, process, context:NAME, ssh://[USER@]HOST, tcp://HOST:PORT, unix:///PATH"
DEFAULT_NAME = "here"


def read_hosts(file: shape.MatrixFile, context: Context) -> tuple[model.Host, ...]:
    """All hosts; without `hosts:`, this machine without containers."""
    if file.hosts is None:
        where = Where(file=context.document.file, line=1, key="hosts")
        return (model.Host(name=DEFAULT_NAME, engine="process", gpus="none", where=where),)
    return tuple(_host(name, host, context) for name, host in file.hosts.items())


def _host(name: str, host: shape.Host, context: Context) -> model.Host:
    key = ("hosts", name)
    if not ENGINE.fullmatch(host.engine):
        context.problems.add((*key, "engine"), f"unknown engine {shown(host.engine)}; allowed: {ALLOWED}")
    gpus = host.gpus if isinstance(host.gpus, str) else tuple(host.gpus)
    if len(set(gpus)) < len(gpus) and not isinstance(gpus, str):
        context.problems.add((*key, "gpus"), "a GPU is listed twice; keep one")
    return model.Host(
        name=name,
        engine=host.engine,
        gpus=gpus,
        where=context.document.where(*key),
        parallel=host.parallel,
        disk_bytes=host.disk,
    )
