"""Everything that touches engines: hosts, images, and the conversation with the agent in each trial.

`ENGINES` maps a kind of engine to the module that opens it. All kinds obey one contract (`tests/contract`);
`trial/one_trial.py` runs a trial on any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from harness import file_locks
from harness.errors import EngineUnreachable
from harness.model import Host
from harness.model.watching import Say
from harness.run.engine import Engine

ENGINES: Mapping[str, str] = {
    "docker": "harness.run.docker.engine",
    "process": "harness.run.process.engine",
    "slurm": "harness.run.slurm.engine",
}
"""Each has `open_engine`. A module is imported when a host needs it: Docker's SDK is slow to import."""


def open_engine(host: Host, *, environ: Mapping[str, str], say: Say) -> Engine:
    """Open the engine of `host`. Raises EngineUnreachable, whose one-line message says what to do."""
    if not file_locks.are_known():
        raise EngineUnreachable(f"{host.where}: {file_locks.NO_LOCKS}")
    module = import_module(ENGINES.get(host.engine, ENGINES["docker"]))
    opened: Engine = module.open_engine(host, environ=environ, say=say)
    return opened
