"""A server on loopback whose answers, good or bad, a test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.players.servers import Server, World, started


@pytest.fixture
def server() -> Iterator[Server]:
    yield from started(Server())


@pytest.fixture
def other() -> Iterator[Server]:
    """Yield another server, which must not learn what is meant for the first."""
    yield from started(Server())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(home=tmp_path)
