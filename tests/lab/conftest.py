"""Hosts of the lab for its own tests, with GPUs other than the usual ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from harness.run import open_engine
from tests.lab.daemon import Daemon
from tests.lab.running import Lab
from tests.players.world import World, host, quiet


@pytest.fixture
def two_cards(lab: Lab) -> Iterator[Daemon]:
    """Yield the host `new`, which has two cards with the same name in this test."""
    before = json.loads(lab.new.data.read_text())
    (card,) = before["gpus"]
    lab.new.set_gpus(gpus=[card, {**card, "uuid": card["uuid"].replace("1111", "9999")}])
    yield lab.new
    lab.new.data.write_text(json.dumps(before))


def world(daemon: Daemon) -> World:
    return World(
        kind=daemon.address, engine=open_engine(host(daemon.address), environ=os.environ, say=quiet), environ=os.environ
    )


@contextmanager
def opened(found: World) -> Iterator[World]:
    with closing(found.engine):
        yield found
