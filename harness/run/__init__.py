"""Everything that touches engines: hosts, images, and the conversation with the agent in each trial.

`ENGINES` maps a kind of engine to the function that opens it. All kinds obey one contract (`tests/contract`);
`trial/one_trial.py` runs a trial on any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness import file_locks
from harness.errors import EngineUnreachable
from harness.model import Host
from harness.model.watching import Say
from harness.run.docker import engine as docker
from harness.run.engine import Engine
from harness.run.process import engine as process
from harness.run.slurm import engine as slurm

ENGINES: Mapping[str, Callable[..., Engine]] = {
    "docker": docker.open_engine,
    "process": process.open_engine,
    "slurm": slurm.open_engine,
}


def open_engine(host: Host, *, environ: Mapping[str, str], say: Say) -> Engine:
    """Open the engine of `host`. Raises EngineUnreachable, whose one-line message says what to do."""
    if not file_locks.are_known():
        raise EngineUnreachable(f"{host.where}: {file_locks.NO_LOCKS}")
    return ENGINES[host.engine if host.engine in ENGINES else "docker"](host, environ=environ, say=say)
