"""`harness clean`: removes what the harness left or keeps on hosts, and nothing that is not its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EngineUnreachable
from harness.matrix import load_matrix
from harness.model import Host, Where
from harness.run import open_engine

HERE = Where(file="harness clean", line=0, key="hosts.here")


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What was removed from one host. `problem`: why it could not be reached."""

    host: str
    leftovers: int = 0
    images: int = 0
    problem: str | None = None


def hosts_of(matrix: Path | None, environ: Mapping[str, str]) -> Sequence[Host]:
    """The hosts of a matrix, or this machine's own engines."""
    if matrix is not None:
        return load_matrix(matrix, environ=environ, check_versions=False).hosts
    return [
        Host(name="docker", engine="docker", gpus="none", where=HERE),
        Host(name="process", engine="process", gpus="none", where=HERE),
    ]


def clean(
    hosts: Sequence[Host], *, images: bool, environ: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[Cleaned]:
    """Remove what dead runs left on each host; with `images` also what the harness built or installed there."""
    for host in hosts:
        try:
            engine = open_engine(host, environ=environ, say=say)
            try:
                left = engine.remove_leftovers()
                yield Cleaned(host=host.name, leftovers=left, images=engine.remove_images(say) if images else 0)
            finally:
                engine.close()
        except EngineUnreachable as error:
            yield Cleaned(host=host.name, problem=str(error))
