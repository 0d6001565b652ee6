"""Does everything that touches engines: hosts, images, and the conversation with the agent in each trial.

An engine's `EngineKind` names the function that opens it. Its module is imported only when it is needed:
importing Docker's client takes a fifth of a sweep's start-up time. All kinds obey one contract
(`tests/contract`); `trial/conversation.py` runs a trial on any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from harness import doors, file_locks
from harness.errors import EngineUnreachable
from harness.model import Host, engine_kind
from harness.model.watching import Say
from harness.run.engine import Engine


def open_engine(host: Host, *, environ: Mapping[str, str], say: Say) -> Engine:
    """Open the engine of `host`. Raises EngineUnreachable with a one-line message that includes the remedy."""
    if not file_locks.are_known():
        raise EngineUnreachable(file_locks.NO_LOCKS, place=host.where)
    return cast(Engine, doors.named(engine_kind(host.engine).opener)(host, environ=environ, say=say))
