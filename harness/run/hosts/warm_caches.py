"""Keeps the warm caches of one host: a launch of a version fills them, and they are removed when its row has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from harness.agent.caches import NO_SPACE, REMEDY
from harness.errors import InfrastructureError
from harness.model import CellRun, Trial
from harness.run.engine import Engine

IN_FILLING = "in the launch that fills its warm cache, which is cold"
OR_SHM = f"{REMEDY}, or give it a larger `shm_size` if that was full"


@dataclass(kw_only=True)
class HostCaches:
    """The references of filled caches by their names, for each version that has been launched in a row that goes on.
    Versions of a row that are the same image share them, as the two of an A/A replicate do. Thread-safe."""

    _filled: dict[Place, Mapping[str, str]] = field(default_factory=dict)
    _locks: dict[Place, threading.Lock] = field(default_factory=dict)
    """Held while a cache is filled."""

    def of(
        self, run: CellRun, engine: Engine, fill: Callable[[Mapping[str, str]], Trial]
    ) -> tuple[Mapping[str, str], Trial | None]:
        """Return the warm caches of a version; fill them before, if they are not. If `fill`, which launches it once,
        does not end well, also return that launch: it is the version's own outcome. Raises InfrastructureError and any
        error of `fill`."""
        place, made = _place(run), dict[str, str]()
        with self._locks.setdefault(place, threading.Lock()):
            if not self.lacks(run, engine):
                return self._filled.get(place, {}), None
            _remove(engine, self._filled.pop(place, {}).values())
            try:
                for cache in run.cell.variant.scenario.caches:
                    if cache.is_warm:
                        made[cache.name] = engine.make_cache()
                trial = fill(made)
                if trial.ended_well:
                    self._filled[place] = made
                    return made, None
                failed = replace(trial, message=f"{trial.message} ({IN_FILLING})", trace=None)
                if NO_SPACE in f"{trial.message} {trial.output.tail}":
                    failed = replace(failed, end="infrastructure", message=f"{failed.message}; {OR_SHM}")
                return {}, failed
            finally:
                if place not in self._filled:
                    _remove(engine, made.values())

    def lacks(self, run: CellRun, engine: Engine) -> bool:
        """Return whether the next launch of a version fills a cache before: it has none yet, or that one is gone, as
        with the job of a cluster, or the engine does not answer."""
        if not any(cache.is_warm for cache in run.cell.variant.scenario.caches):
            return False
        with suppress(InfrastructureError):
            filled = self._filled.get(_place(run))
            return filled is None or not all(map(engine.has_cache, filled.values()))
        return True

    def forget(self, runs: Iterable[CellRun], engine: Engine) -> None:
        """Remove the caches of these versions."""
        for run in runs:
            _remove(engine, self._filled.pop(_place(run), {}).values())

    def close(self, engine: Engine) -> None:
        """Remove all caches."""
        while self._filled:
            _remove(engine, self._filled.popitem()[1].values())


Place = tuple[str, str, str, str]


def _place(run: CellRun) -> Place:
    """Return the row and the key: each row removes its own caches."""
    return run.cell.image.series, str(run.cell.lane), run.cell.variant.id, run.key


def _remove(engine: Engine, references: Iterable[str]) -> None:
    """Remove caches. One that cannot be removed is a leftover of this process."""
    for reference in references:
        with suppress(InfrastructureError):
            engine.remove_cache(reference)
