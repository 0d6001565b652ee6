"""What tests of several parts share: their own place on the machine, and the lab's hosts, started once."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from importlib.metadata import entry_points
from typing import Any

import pytest

from harness.model.engines import GROUP
from tests import groups, nightly, own_place
from tests.lab.daemon import Daemon, LabError
from tests.lab.running import lab
from tests.slurm.running import cluster

__all__ = ["cluster", "lab"]

gc.disable()  # until all is imported and collected

nightly.load_profile()  # before any test is imported: their settings depend on it

PLACE = pytest.StashKey[contextlib.ExitStack]()
ENGINE = pytest.StashKey[Daemon]()
"""The Docker Engine of this test process, once it is started."""


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # the shell of a background job ignores it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not entry_points(group=GROUP, name="slurm"):
        told = "the harness was installed before pyproject.toml named its engines; install it again"
        raise pytest.UsageError(f"{told}: {sys.executable} -m pip install --editable .")
    starts_workers = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    config.stash[PLACE] = contextlib.ExitStack()
    own_place.put_tmp_path_aside()
    if starts_workers:
        return
    config.stash[PLACE].enter_context(own_place.own_folders())
    if own_place.engine_can_be_ours():
        config.stash[ENGINE] = config.stash[PLACE].enter_context(own_place.reserved_engine())


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[PLACE].close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups.arrange(items)


def pytest_collection_finish() -> None:
    """Freeze what was imported and collected: searching it for garbage took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat tests of kills at night: a kill hits another moment each time."""
    if nightly.NIGHTLY and metafunc.definition.get_closest_marker("kills"):
        metafunc.fixturenames.append("time")
        metafunc.parametrize("time", range(nightly.AS_MANY))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler for `--dist loadgroup`; other modes use pytest-xdist's own."""
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.scheduler import ByGroup

    found = ByGroup(config, log)
    found.engine_is_shared = not own_place.engine_can_be_ours()
    return found


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Collect a test's garbage in that test: later it would fail whichever test is running."""
    if any("PytestUnraisable" in str(mark.args) for mark in item.iter_markers("filterwarnings")):
        gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start an engine for the first test that needs one, before any fixture looks for it."""
    daemon = item.config.stash.get(ENGINE, None)
    if daemon is None or not item.get_closest_marker("docker"):
        return
    del item.config.stash[ENGINE]
    try:
        item.config.stash[PLACE].enter_context(own_place.started(daemon))
    except LabError:
        if os.environ.get("HARNESS_REQUIRE_DOCKER") == "1":
            raise
        os.environ.pop("DOCKER_HOST", None)  # the machine's engine may be there
