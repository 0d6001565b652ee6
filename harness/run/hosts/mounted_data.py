"""Finds out what the mounts of a scenario are on a host: whether they exist there, and their identity.

A launch of the cell's own image that only describes its mounts reads them, so that a host is asked in the same way as
a trial sees it, on every engine.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import amounts
from harness.atomic_files import write_atomically
from harness.env_files import keyed_digest
from harness.errors import InfrastructureError
from harness.model import Cell, Mount, Prepared, Scenario
from harness.model.watching import Say
from harness.run.engine import Engine, LaunchRequest
from harness.run.process.environments import cache_folder
from harness.run.trial.conversation import POLL_S, STARTUP_S
from harness.run.trial.messages import MessageLines, Misunderstood, Mounted, MountSeen, parse_message
from harness.run.trial.payload import agent_payload, mounts_of

SMALL = 10_000
"""Most files of a mount at which each launch looks again: the agent's MOST_IN_TRIAL."""
REMEMBERED = 1000
"""Number of contents whose hashes are kept."""


class DataUnavailable(InfrastructureError):
    """Raised if mounted data do not exist on a host or cannot be used there."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Mounted data. `identity` is a part of the trial's key, `files` what launches compare; None: too many files."""

    identity: str
    files: str | None


@dataclass(kw_only=True)
class HostData:
    """The mounted data of one host, each described once. `environ` names the folder in which hashes are kept."""

    environ: Mapping[str, str] = field(default_factory=dict)
    _found: dict[Mount, Found | DataUnavailable] = field(default_factory=dict)

    def of(self, cell: Cell, prepared: Prepared, engine: Engine, say: Say) -> Mapping[Mount, Found]:
        """Return what the mounts of a cell's scenario are. Raises DataUnavailable if one of them cannot be used,
        InfrastructureError, and any error of `say`."""
        mounts = cell.variant.scenario.data
        new = [mount for mount in mounts if mount not in self._found]
        if new:
            self._ask(new, cell, prepared, engine, say)
        for mount in mounts:
            if isinstance(found := self._found[mount], DataUnavailable):
                raise found
        return {mount: found for mount in mounts if isinstance(found := self._found[mount], Found)}

    def _ask(self, mounts: Sequence[Mount], cell: Cell, prepared: Prepared, engine: Engine, say: Say) -> None:
        by_content = any(mount.identity == "content" for mount in mounts)
        known, place = self._known() if by_content else {}, str(cell.lane.host.where)
        names = {mount: f"{engine.facts.get('name')}:{mount.source}" for mount in mounts}
        say("looking for its data")
        absent = engine.missing([mount.source for mount in mounts])
        for mount in mounts:
            if mount.source in absent:
                text = missing_text(mount.source, cell.variant.scenario.name)
                self._found[mount] = DataUnavailable(text, place=place)
        there = [mount for mount in mounts if mount.source not in absent]
        if not there or absent:
            return
        jobs = [
            {**job, "identity": mount.identity, **known.get(names[mount], {})}
            for job, mount in zip(mounts_of(there), there, strict=True)
        ]
        for mount, seen in zip(there, _described(jobs, cell, prepared, engine, say), strict=True):
            if seen.kind == "file" and mount.at.endswith("/"):
                text = f"{mount.source} is a file, and its place a folder; write at: {mount.at}{mount.source.name}"
                self._found[mount] = DataUnavailable(text, place=place)
                continue
            if seen.problem:
                self._found[mount] = DataUnavailable(f"{mount.source}: {seen.problem}", place=place)
                continue
            self._found[mount] = _found(mount, seen)
            if mount.identity == "content":
                known[names[mount]] = {"known": seen.inodes, "content": seen.content}
                newest = dict(list(known.items())[-REMEMBERED:])
                self._cache.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._cache, json.dumps(newest))

    @property
    def _cache(self) -> Path:
        return cache_folder(self.environ).with_name("contents.json")

    def _known(self) -> dict[str, Any]:
        try:
            content = json.loads(self._cache.read_text())
            return content if isinstance(content, dict) else {}
        except (OSError, ValueError):  # there is none yet, or a disk was full: contents are hashed again
            return {}


def key_of_inputs(scenario: Scenario, data: Mapping[Mount, Found], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the part of a trial's key that comes from mounts and from an env file. Raises InfrastructureError."""
    mounts = {mount.at: found.identity for mount, found in data.items()}
    if not scenario.secrets:
        return {"mounts": mounts} if mounts else {}
    try:
        digest = keyed_digest(scenario.secrets, cache_folder(environ).parent)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}; set HARNESS_CACHE to a folder that can be written"
        raise InfrastructureError(text) from error
    return {"mounts": mounts, "env_file": digest}


def missing_text(path: Path, scenario: str) -> str:
    return f"{path} does not exist on this host; see `mounts:` of {scenario}"


def missing_data(engine: Engine, scenarios: Iterable[Scenario]) -> tuple[str, ...]:
    """Return a line for each path that these scenarios mount and the host does not have. Raises InfrastructureError."""
    mounting = {mount.source: scenario.name for scenario in scenarios for mount in scenario.data}
    absent = engine.missing(list(mounting)) if mounting else ()
    return tuple(missing_text(path, mounting[path]) for path in absent)


def _found(mount: Mount, seen: MountSeen) -> Found:
    if mount.identity == "name":
        return Found(identity=f"name {mount.source}", files=None)
    digest = seen.content if mount.identity == "content" else seen.files
    size = f"{amounts.count(max(seen.entries, 1), 'file')}, {amounts.size(seen.bytes)}"
    return Found(
        identity=f"{mount.identity} {digest[:16]} ({size})", files=seen.files if seen.entries <= SMALL else None
    )


def _described(
    jobs: Sequence[Mapping[str, Any]], cell: Cell, prepared: Prepared, engine: Engine, say: Say
) -> list[MountSeen]:
    """Return the agent's descriptions of mounts, from a launch that makes no step."""
    marker = secrets.token_hex(16)
    launch = LaunchRequest(
        prepared=prepared,
        scenario=cell.variant.scenario,
        payload=agent_payload({"marker": marker, "mounts": jobs, "survey": True}),
        run="mounts",
        cell_id=cell.id,
    )
    for message in _messages(launch, marker, engine):
        if message.mounts is not None:
            if len(message.mounts) == len(jobs):
                return list(message.mounts)
            break
        say(message.text or "reading its data")
    raise InfrastructureError("the data could not be read: the agent's message was not understood")


def _messages(launch: LaunchRequest, marker: str, engine: Engine) -> Iterator[Mounted]:
    """Launch, and yield the agent's messages, and an empty one whenever none came. Raises InfrastructureError."""
    lines, heard_s = MessageLines(marker), time.monotonic()
    with engine.launch(launch) as session:
        while time.monotonic() < heard_s + STARTUP_S:
            data = session.receive(POLL_S)
            if data is None:
                lines.rest()
                last = session.exit()
                printed = last.error or last.stderr_tail.strip() or lines.noise.text().strip()
                why = printed.splitlines()[-1][:300] if printed else f"no output, exit code {last.exit_code}"
                raise InfrastructureError(f"the data could not be read: the agent did not start: {why}")
            yield Mounted()
            try:
                messages = [parse_message(text) for text in lines.feed(data)]
            except Misunderstood as error:
                raise InfrastructureError(f"the data could not be read: {error}") from error
            heard_s = time.monotonic() if messages else heard_s
            yield from (message for message in messages if isinstance(message, Mounted))
    raise InfrastructureError(f"the data could not be read: no answer for {STARTUP_S:.0f} s")
