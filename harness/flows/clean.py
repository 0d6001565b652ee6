"""Removes from hosts what the harness left or keeps there, and nothing else, for `harness clean`."""

from __future__ import annotations

import contextlib
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from harness import amounts
from harness.errors import EngineUnreachable, HarnessError, InfrastructureError, UsageError
from harness.matrix import load_hosts
from harness.model import Host, Where
from harness.model.watching import Say
from harness.run import open_engine
from harness.run.engine import Engine
from harness.store import began_at, in_use
from harness.store.trial_json import FOLDER

NODE_S = 60.0
"""Seconds to wait for each node of a cluster; nodes that others use now are cleaned another time."""
HERE = Where(file="harness clean", line=0, key="hosts.local")


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """The names of the items that were removed from one host, or would be removed (`dry_run`).

    `leftovers`: what killed runs left, including a lease. `images`: images and environments; None if only leftovers
    were to be removed. `kept` is then the number of images that stay, if it is known. `problem`: why the host was not
    cleaned.
    """

    host: str
    leftovers: tuple[str, ...] = ()
    images: tuple[str, ...] | None = None
    kept: int = 0
    problem: str | None = None
    dry_run: bool = False

    def __str__(self) -> str:
        """Return the text to print: the counts, then one name per line."""
        if self.problem is not None:
            return f"{self.host}: not cleaned: {self.problem}"
        names = (*self.leftovers, *(self.images or ()))
        counts = [f"{amounts.count(len(self.leftovers), 'leftover')} of killed runs"] if self.leftovers else []
        if self.images is not None:
            counts.append(amounts.count(len(self.images), "image"))
        did = "would remove" if self.dry_run else "removed"
        told = f"{did} {', '.join(counts)}" if names else "nothing to remove"
        if self.kept:
            told += f"; {amounts.count(self.kept, 'image')} kept (`--images` removes those not in use)"
        return "\n".join([f"{self.host}: {told}", *(f"  {name}" for name in names)])


def hosts_of(matrix: Path | None, environ: Mapping[str, str]) -> tuple[str | None, Sequence[Host]]:
    """Return a matrix's name and its hosts; without a matrix, this machine's own engines."""
    if matrix is not None:
        return load_hosts(matrix, environ=environ)
    return None, [
        Host(name="docker", engine="docker", gpus="none", where=HERE),
        Host(name="process", engine="process", gpus="none", where=HERE),
    ]


def clean(
    hosts: Sequence[Host],
    *,
    images: bool,
    dry_run: bool,
    environ: Mapping[str, str],
    say: Say,
    open_engine: Callable[..., Engine] = open_engine,
) -> Iterator[Cleaned]:
    """Remove what killed runs left on each host; with `images`, also what the harness pulled, built or installed there.
    `dry_run`: remove nothing. The nodes of a pool are held until all of them are clean, because otherwise the queue
    would grant the same node again.
    """
    for host in hosts:
        # One machine of a cluster is enough, unless images are to be removed that exist only on its nodes.
        only_one = host.can.queues and not (images and host.can.keeps_images_there)
        with contextlib.ExitStack() as opened:
            for machine in host.machines[:1] if only_one else host.machines:
                try:
                    engine = open_engine(machine, environ=environ, say=say)
                    opened.callback(engine.close)
                    yield _clean(machine, engine, images=images, dry_run=dry_run, say=say)
                except HarnessError as error:  # the other hosts are still cleaned
                    yield Cleaned(host=_name(machine), problem=error.text_at(HERE))


def _name(machine: Host, engine: Engine | None = None) -> str:
    if not machine.machine or (machine.can.queues and engine is None):
        return machine.name
    node = engine.facts.get("name") if engine is not None and machine.can.queues else machine.machine
    return f"{machine.name}, {node}" if node else machine.name


def _clean(host: Host, engine: Engine, *, images: bool, dry_run: bool, say: Say) -> Cleaned:
    left, gone, kept = engine.leftovers(), None, 0
    if not dry_run:
        engine.remove_leftovers()
    if images:
        if host.can.keeps_images_there:
            engine.cpu((), _for_a_while(say, place=host.where))  # makes the queue grant the node
            if not dry_run:
                engine.remove_leftovers()  # images that leftovers use could not be removed
        gone = tuple(each.name for each in engine.kept()) if dry_run else engine.remove_images(say)
    elif not host.can.keeps_images_there:
        kept = len(engine.kept())
    return Cleaned(host=_name(host, engine), leftovers=left, images=gone, kept=kept, dry_run=dry_run)


def _for_a_while(say: Say, *, place: Where) -> Say:
    """Return a function that reports each reason for waiting once, and raises EngineUnreachable after NODE_S."""
    until_s, told = time.monotonic() + NODE_S, set[str]()

    def waiting(text: str) -> None:
        if time.monotonic() > until_s:
            raise EngineUnreachable(
                f"no node within {NODE_S:.0f} s ({text}); clean again when one is free", place=place
            )
        if text not in told:
            told.add(text)
            say(f"{place}: {text}, {NODE_S:.0f} s at most")

    return waiting


# ---------------------------------------------------------------- old runs


NAME = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{4}")
REMOVED = ".removed-"
AGE = re.compile(r"(\d{1,5})(h|d|w)")
HOURS = {"h": 1, "d": 24, "w": 168}


def age(text: str) -> timedelta:
    """Parse an age such as `12h`, `30d` or `8w`. Raises ValueError."""
    match = AGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an age; write 12h, 30d or 8w")
    return timedelta(hours=int(match[1]) * HOURS[match[2]])


def check_folder(out: Path) -> None:
    """Raise UsageError if there is no such folder."""
    if not out.is_dir():
        raise UsageError(f"--out: {out}: no such folder; give the folder of the runs")


def clean_runs(
    out: Path, *, matrix: str | None, older_than: timedelta, dry_run: bool, now: datetime | None = None
) -> Iterator[str]:
    """Remove the runs in `out` that are older than `older_than`, of one matrix or of all, oldest first, and yield a
    line for each; with `dry_run`, only yield the lines. The newest run of each matrix stays, and so do runs in
    progress. Raises InfrastructureError.
    """
    if not dry_run:
        for half in out.glob(f"*/{REMOVED}*"):  # left by an earlier call that was killed
            if NAME.fullmatch(half.name.removeprefix(REMOVED)):
                _remove(half, half)
    before = (now or datetime.now(timezone.utc)) - older_than
    for folder in sorted(path for path in out.iterdir() if path.is_dir() and not path.is_symlink()):
        named = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and began_at(path.name) is not None]
        runs = sorted(path for path in named if not path.is_symlink() and (path / FOLDER).is_dir())
        for run in runs if matrix in (None, folder.name) else ():
            began = began_at(run.name)
            if began is None or began >= before:
                continue
            line, is_newest = f"{run} ({amounts.size(_alone_bytes(run))})", run == runs[-1]
            if is_newest or in_use(run):
                yield f"left alone: {line}: {'the newest of its matrix' if is_newest else 'in use'}"
                continue
            if not dry_run:
                _remove(run, run.with_name(f"{REMOVED}{run.name}"))
            yield f"{'would remove' if dry_run else 'removed'} {line}"


def _remove(run: Path, away: Path) -> None:
    """Remove a run. It is renamed first: if the removal is killed, what remains does not count as a run, and the next
    call finds it. Raises InfrastructureError.
    """
    try:
        run.rename(away)
        shutil.rmtree(away)
    except OSError as error:
        raise InfrastructureError(f"{error.filename or run}: cannot be removed: {error.strerror}") from error


def _alone_bytes(path: Path) -> int:
    """Return the size of a run, without the files that it shares with other runs."""
    files = (found for file in path.rglob("*") if stat.S_ISREG((found := file.lstat()).st_mode))
    return sum(found.st_size for found in files if found.st_nlink == 1)
