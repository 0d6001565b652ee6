"""Faults at random moments of real sweeps: is a trial lost or doubled, a file torn, a process left, a verdict wrong?

Each time, one fault hits a sweep of two versions, of which the newer one crashes:

    harness   SIGKILL to the harness, which is then started again until a sweep ends
    agent     SIGKILL to the agent of the running trial
    engine    SIGKILL to dockerd, alone or with all that it started; to a node's slurmd with its steps, or to slurmctld;
              on a process host, which has no engine, to all processes of the trial at once
    scenario  SIGKILL to the scenario
    full      the file system of the run's directory is full for a while
    memory    the harness gets no more memory for a while
    pressure  the harness and its trials together get no more memory for a while: the kernel kills some of them
    clock     the time of day jumps by a day, forward or back, for the harness, its agents and its scenarios
    beside    a second sweep, a watch and `harness clean --images --runs 1h`, on the same host at the same time
    frozen    the Docker Engine is stopped for 5 s (SIGSTOP)
    restarted the Docker Engine, or slurmctld, is ended and started again
    cut       the network between the harness and the engine loses every packet for a while

`frozen` and `cut` are for Docker. The engines are separate ones, started as root: a Docker Engine with the base image
of the machine's engine, and a Slurm. `clock` needs a C compiler and the process engine, `pressure` a memory cgroup and
the process engine. What is left is noted after each fault; half of the time `harness clean` then has to remove it, the
other half the next sweep. At the end the sweep is started once more, and its result is compared with that of an
undisturbed sweep.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.planted_sweeps import BEFORE, FIRST_BAD, ROOT, Workshop
from harness.run import leases
from harness.run.process import cgroups
from harness.run.process.cgroups import CGROUPS, PROCS
from harness.run.slurm.container_commands import NODE_FOLDER
from harness.store.trial_json import trial_files
from tests.lab.daemon import Daemon
from tests.numbering import free_number
from tests.serving import free_port
from tests.slurm.cluster import Cluster
from tests.waiting import until

BASE = os.environ.get("HARNESS_BASE", "harness-base:bookworm")
Engine = Daemon | Cluster | None
"""What runs the trials; None: this machine, as processes."""
VERSIONS = (BEFORE, FIRST_BAD)
LAUNCHES = 3
MARK, OURS = "FAULTS_TOKEN", "FAULTS_PLACE"
"""Variables whose value is a place's token: of the processes of trials, and of the commands started there."""
ENDS_S = 300.0
"""Seconds after which a sweep that has not ended counts as a failure."""
FROZEN_S = 5.0
CUT_S = 8.0
OWN_ENGINES = Path("/var/tmp/harness-faults")
MOST_ENGINES = 9
FIRST_DAEMON, FIRST_CLUSTER = 90, 80
"""What is added to the number of a separate engine; other engines and clusters on this machine have other numbers."""
GONE_S = 20.0
"""Seconds in which what is ending has to be gone."""
STARTED_AGAIN_S = 3.0
JUDGED_ALIKE = ("harness", "agent", "engine", "restarted")
"""Faults that say nothing about a version: afterwards, each verdict and its number of launches are the usual ones."""
ENDED = (0, 1, 3, 4)
"""Exit codes of a sweep that has a result."""
MAY_DIE = {"harness": signal.SIGKILL, "memory": signal.SIGABRT, "pressure": signal.SIGKILL}
"""Fault -> the signal that may end a sweep; a library written in Rust aborts its process if it gets no memory."""
FULL_BYTES = 3 << 20
KEPT = ("harness-lease", "harness-sweeps-")
"""Begins the names of the files in a temporary folder that are never removed."""
TOLD_LINES = 12
"""Lines of a traceback that are printed."""
ROOM_BYTES = 8 << 20
DAY_S = 86400
CLOCK_SOURCE = Path(__file__).with_name("clock_offset.c")
BAD_WORDS = frozenset({"crash", "oom", "hang", "leak", "slowdown", "growth"})
PROGRAM = """\
import os, time

def setup():
    count = 0
    def step():
        nonlocal count
        count += 1
        time.sleep(0.003)
        if count == 100 and os.environ["CARRIED"] == "1.2":
            raise RuntimeError("planted")
    return step
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder with a matrix, its runs, and its own temporary files."""

    folder: Path
    environ: Mapping[str, str]
    token: str
    engine: Engine
    cgroup: Path | None
    """The cgroup of everything that is started here; None: that of this process."""
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def runs(self) -> list[Path]:
        return sorted((self.folder / "reports" / "matrix").glob("[0-9]*"))

    @property
    def clock(self) -> Path:
        """The file with the seconds by which clocks are wrong here, which clock_offset.c reads."""
        return self.folder / "clock"

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a harness command; by default, the sweep."""
        joined = [] if self.cgroup is None else ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.cgroup / PROCS)]
        process = subprocess.Popen(
            [*joined, sys.executable, "-m", "harness", *(command or ("sweep", "matrix.yaml", "--seed", "1"))],
            cwd=self.folder, env=dict(self.environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        self.started.append(process)
        return process

    def processes(self, *names: str) -> list[psutil.Process]:
        """Return the processes with our token in one of these variables; by default those of trials, also in
        containers.
        """
        marks = {f"{name}={self.token}".encode() for name in names or (MARK,)}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if marks & set(Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")):
                    found.append(process)
        return found

    def left(self) -> list[str]:
        """Return what a sweep that has ended left but should not: processes, folders, leases, cgroups, mounts,
        containers, volumes and jobs.
        """
        temporary = self.folder / "tmp"
        names = [f"process {process.pid} {_name(process)}" for process in self.processes(MARK, OURS)]
        names += [f"folder {path.name}" for path in temporary.iterdir() if not path.name.startswith(KEPT)]
        names += [f"file {path.name}" for path in (self.folder / "reports").rglob(".*.tmp")]
        names += [f"lease of {holder}" for holder in (leases.holder(temporary),) if holder]
        dead = cgroups.leftovers(temporary, root=CGROUPS)  # those of all sweeps on this machine
        names += [f"cgroup {name}" for name in dead if self._started(name) and not (temporary / name).exists()]
        if self.cgroup is not None:
            names += [f"cgroup {path.name}" for path in self.cgroup.iterdir() if path.is_dir()]
        folders = [self.folder / "tmp"]
        if isinstance(self.engine, Daemon):
            folders.append(self.engine.folder / "data" / "overlay2")
            with contextlib.closing(self.engine.client()) as client:
                found = client.containers.list(all=True, ignore_removed=True)
                names += [f"container {each.name}" for each in found]
                names += [f"volume {each.name}" for each in client.volumes.list()]
        elif isinstance(self.engine, Cluster):
            names += [f"job {job}" for job in self.engine.jobs()]
            names += [f"folder {at.name} on the node" for at in Path(NODE_FOLDER).glob("harness-*_*")
                      if self._started(at.name)]  # fmt: skip
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        names += [f"mount {at}" for at in mounts if any(Path(at).is_relative_to(folder) for folder in folders)]
        return names

    def _started(self, name: str) -> bool:
        """Return whether something with an owner's name belongs to a command that was started here."""
        return any(f"_{process.pid}_" in name for process in self.started)


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.name()
    return "(gone)"


def matrix(workshop: Workshop, engine: Engine, environment: Mapping[str, str]) -> dict[str, Any]:
    carried = {"environment": {"CARRIED": "{version}"}}
    series = workshop.series("planted", VERSIONS)["carrier"]
    host: dict[str, Any] = {"engine": "process"}
    if isinstance(engine, Daemon):
        series, host = {"images": dict.fromkeys(VERSIONS, BASE)}, {"engine": "docker"}
    elif isinstance(engine, Cluster):
        hold = {"time": "10m", "wait": "2m"}
        host = {"engine": "slurm", "container": "none", "nodes": [engine.nodes[0]], "hold": hold}
    scenario = {
        "script": "program.py", "steps": {"first": 64, "budget": 128}, "timeout": "20s", "environment": environment,
        "limits": {"step_time": "none"},
    }  # fmt: skip
    return {
        "version": 1,
        "series": {"carrier": {**series, **carried}},
        "hosts": {"local": {**host, "parallel": False}},
        "scenarios": {"program": scenario},
        "trials": {"least": LAUNCHES, "most": LAUNCHES},
    }


@contextlib.contextmanager
def place(workshop: Workshop, engine: Engine, fault: str = "") -> Iterator[Place]:
    token = secrets.token_hex(4)
    with tempfile.TemporaryDirectory(prefix="f-") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        (folder / "reports").mkdir()
        (folder / "program.py").write_text(PROGRAM)
        shifted = {"LD_PRELOAD": str(workshop.folder / "clock.so"), "CLOCK_OFFSET": str(folder / "clock")}
        clock = shifted if fault == "clock" else {}
        (folder / "matrix.yaml").write_text(json.dumps(matrix(workshop, engine, {MARK: token, **clock})))
        environ = {
            **clock, **os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp"), "UV_OFFLINE": "1",
            "HARNESS_CACHE": str(workshop.folder / "cache"), "UV_CACHE_DIR": str(workshop.folder / "uv"), OURS: token,
        }  # fmt: skip
        if isinstance(engine, Daemon):
            environ["DOCKER_HOST"] = engine.listen[0] if fault == "cut" else engine.address
        elif engine is not None:
            environ["SLURM_CONF"] = str(engine.conf)
        cgroup = cgroups.create(f"faults-{token}") if fault == "pressure" else None
        at = Place(folder=folder, environ=environ, token=token, engine=engine, cgroup=cgroup)
        at.clock.write_bytes(bytes(8))
        with _small(folder / "reports") if fault == "full" else contextlib.nullcontext():
            try:
                yield at
            finally:
                for process in at.started:
                    process.kill()
                    process.wait()
                if cgroup is not None:
                    cgroups.remove(cgroup)


@contextlib.contextmanager
def _small(folder: Path) -> Iterator[None]:
    """Mount a small file system for the run's directory."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES}", "faults", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


# ---------------------------------------------------------------- faults


class Missed(Exception):
    """Raised if a fault found nothing to hit, because the sweep was about to end."""


def kill_harness(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    process.kill()


def kill_agent(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    _kill(at, lambda each, others: each.ppid() not in others)


def kill_scenario(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    _kill(at, lambda each, others: each.ppid() in others)


def kill_engine(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    """Kill the engine and start it again; without one, kill all processes of a trial at once."""
    if at.engine is None:
        _kill(at, lambda each, others: True)
    elif isinstance(at.engine, Daemon):
        at.engine.kill() if rng.random() < 0.5 else at.engine.kill_alone()
        time.sleep(rng.uniform(0, STARTED_AGAIN_S))
        at.engine.start()
    elif rng.random() < 0.5:
        at.engine.stop_controller()
        time.sleep(rng.uniform(0, STARTED_AGAIN_S))
        at.engine.start_controller()
    else:
        at.engine.lose_node(at.engine.nodes[0])
        time.sleep(rng.uniform(0, STARTED_AGAIN_S))
        at.engine.start_node(at.engine.nodes[0])


def _kill(at: Place, chosen: Callable[[psutil.Process, set[int]], bool]) -> None:
    """Kill the chosen processes of a trial, once there are any. Raises Missed."""
    end_s = time.monotonic() + 5
    while time.monotonic() < end_s:
        processes = at.processes()
        pids = {each.pid for each in processes}
        found = []
        for each in processes:
            with contextlib.suppress(psutil.Error):
                if chosen(each, pids):
                    each.kill()
                    found.append(each)
        if found:
            return
        time.sleep(0.02)
    raise Missed


def fill(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    """Fill the file system for a while, or until the sweep has ended."""
    filler = at.folder / "reports" / "filler"
    with contextlib.suppress(OSError), filler.open("wb") as file:
        for _ in range(FULL_BYTES >> 12):
            file.write(bytes(1 << 12))
            file.flush()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(rng.uniform(0.5, 5))
    filler.unlink()


def starve(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    """Give the harness no more memory for a while: its address space may not grow."""
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        harness = psutil.Process(process.pid)
        room = harness.memory_info().vms + rng.randint(0, ROOM_BYTES)
        harness.rlimit(psutil.RLIMIT_AS, (room, resource.RLIM_INFINITY))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.5, 5))
        harness.rlimit(psutil.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def press(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    """Give the harness and its trials together hardly more memory than they use, for a while."""
    if at.cgroup is None:
        raise SystemExit("the fault `pressure` needs a memory cgroup: run it as root")
    limit = at.cgroup / "memory.max"
    told = dict(line.split() for line in (at.cgroup / "memory.stat").read_text().splitlines())
    used = int(told["anon"])
    with contextlib.suppress(OSError):  # the kernel can refuse a limit below the current use
        limit.write_text(str(used + rng.randint(0, ROOM_BYTES)))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(rng.uniform(0.5, 5))
    limit.write_text("max")


def set_clock(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    """Set the clocks a day forward or back."""
    with at.clock.open("r+b") as file:
        shifted_s = int.from_bytes(file.read(8), sys.byteorder, signed=True) + rng.choice((-DAY_S, DAY_S))
        file.seek(0)
        file.write(shifted_s.to_bytes(8, sys.byteorder, signed=True))


def beside(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    """Run another sweep, a watch and `harness clean` at the same time as the sweep."""
    others = (at.start(), at.start("watch", "matrix.yaml", "--once"))
    while any(each.poll() is None for each in (process, *others)):
        at.start("clean", "matrix.yaml", "--images", "--runs", "1h").wait()
        time.sleep(rng.uniform(0.1, 1))


def freeze(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    stopped = [each for each in daemon_of(at).processes() if each.name() == "dockerd"]
    for each in stopped:
        each.suspend()
    try:
        time.sleep(FROZEN_S)
    finally:
        for each in stopped:
            each.resume()


def restart(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    """End the engine in good order, and start it again."""
    if isinstance(at.engine, Cluster):
        at.engine.stop_controller(signal.SIGTERM)
        time.sleep(rng.uniform(0, STARTED_AGAIN_S))
        at.engine.start_controller()
    else:
        daemon_of(at).stop()
        time.sleep(rng.uniform(0, STARTED_AGAIN_S))
        daemon_of(at).start()


def cut(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    """Lose every packet between the harness and the engine, in both directions."""
    port = daemon_of(at).listen[0].rpartition(":")[2]
    with contextlib.ExitStack() as stack:
        for way in ("--dport", "--sport"):
            rule = ["INPUT", "-i", "lo", "-p", "tcp", way, port, "-j", "DROP"]
            subprocess.run(["iptables", "-w", "-I", *rule], check=True)
            stack.callback(subprocess.run, ["iptables", "-w", "-D", *rule], check=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.5, CUT_S))


FAULTS: Mapping[str, Callable[[Place, subprocess.Popen[str], random.Random], None]] = {
    "harness": kill_harness,
    "agent": kill_agent,
    "engine": kill_engine,
    "scenario": kill_scenario,
    "full": fill,
    "memory": starve,
    "pressure": press,
    "clock": set_clock,
    "beside": beside,
    "frozen": freeze,
    "restarted": restart,
    "cut": cut,
}
ON_ENGINES = {
    "process": ("harness", "agent", "engine", "scenario", "full", "memory", "pressure", "clock", "beside"),
    "docker": ("harness", "agent", "engine", "scenario", "frozen", "restarted", "cut"),
    "slurm": ("harness", "agent", "engine", "scenario", "restarted"),
}
"""The faults that hit the sweeps of each kind of engine."""


def daemon_of(at: Place) -> Daemon:
    if not isinstance(at.engine, Daemon):
        raise SystemExit("this fault is for Docker")
    return at.engine


@contextlib.contextmanager
def own_engine(kind: str) -> Iterator[Engine]:
    """Yield an engine of a kind (`process`, `docker` or `slurm`) that nothing else uses."""
    if kind == "process":
        yield None
        return
    taken = SystemExit(f"{MOST_ENGINES} campaigns have an engine each on this machine")
    with free_number(OWN_ENGINES, most=MOST_ENGINES + 1, taken=taken) as number:
        folder = OWN_ENGINES / f"{kind}-{number}"
        engine: Daemon | Cluster = Cluster(folder=folder, number=FIRST_CLUSTER + number)
        if kind == "docker":
            address = f"tcp://127.0.0.1:{free_port()}"
            engine = Daemon(folder=folder, number=FIRST_DAEMON + number, listen=(address,))
        try:
            engine.stop()  # what a killed call left
            engine.start()
            if isinstance(engine, Daemon):
                engine.load([BASE])
                engine.clear()
            yield engine
        finally:
            engine.stop()
            shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- one sweep


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The result of a sweep: the verdict of each cell, the findings, and the trials by cell."""

    words: Mapping[str, str]
    findings: frozenset[str]
    trials: Mapping[str, int]


@dataclass(kw_only=True)
class Disturbed:
    """What one disturbed sweep showed: how often the fault hit it, what was left before anything cleaned up, and the
    problems, which are empty if all is well.
    """

    hits: int = 0
    left: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def undisturbed(workshop: Workshop, engine: Engine) -> tuple[Ending, float]:
    """Return the result of an undisturbed sweep, and its seconds; later sweeps find the environments made."""
    with place(workshop, engine) as at:
        problems = end(at.start())
        for run in at.runs:
            shutil.rmtree(run)
        began_s = time.monotonic()
        problems += end(at.start())
        if problems:
            raise SystemExit(f"the undisturbed sweep failed: {problems}")
        return ending(at), time.monotonic() - began_s


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """What every disturbed sweep is compared with; `usual_s` is the duration of an undisturbed sweep in seconds."""

    workshop: Workshop
    engine: Engine
    wanted: Ending
    usual_s: float

    @classmethod
    def prepared(cls, folder: Path, engine: Engine) -> Campaign:
        """Return a campaign whose packages are built in a folder, after two undisturbed sweeps."""
        workshop = Workshop(folder=folder)
        workshop.build()
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "clock.so"), str(CLOCK_SOURCE)], check=True)
        wanted, usual_s = undisturbed(workshop, engine)
        print(f"undisturbed: {dict(wanted.words)}, {sorted(wanted.findings)}, {usual_s:.1f} s", flush=True)
        return cls(workshop=workshop, engine=engine, wanted=wanted, usual_s=usual_s)

    def once(self, fault: str, rng: random.Random) -> Disturbed:
        """Disturb one sweep, up to three times in each of up to three calls, and return what it showed."""
        told, is_strict = Disturbed(), fault in JUDGED_ALIKE
        with place(self.workshop, self.engine, fault) as at:
            for _ in range(rng.randint(1, 3)):
                if self._disturb(at, fault, rng, told):
                    break
            told.problems += end(at.start())  # the next call resumes, and removes what is left
            told.problems += [*torn(at), *_staying(at, "the next sweep")]
            result = ending(at)
            told.problems += compared(result, self.wanted, is_strict=is_strict) if result.words else ["no result"]
        if isinstance(self.engine, Cluster):
            self.engine.clear()
        return told

    def _disturb(self, at: Place, fault: str, rng: random.Random, told: Disturbed) -> bool:
        """Disturb one call of the sweep, and return whether it is complete nevertheless."""
        process, before = at.start(), set[str]()
        share = 1.0 if fault == "harness" else 0.6  # afterwards, all launches may have ended
        beside = len(at.started)
        for number in range(rng.randint(1, 3)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.05, share * self.usual_s / (1 + number)))
            if process.poll() is not None:
                break
            before |= _known(at)
            with contextlib.suppress(Missed):
                FAULTS[fault](at, process, rng)
                told.hits += 1
        told.problems += end(process, may_die=MAY_DIE.get(fault))
        for each in at.started[beside:]:
            told.problems += end(each)
        told.left += at.left()
        has_ended = process.returncode in ENDED
        if has_ended and fault in JUDGED_ALIKE:
            told.problems += [f"at once: {one}" for one in compared(ending(at), self.wanted)]
        if rng.random() < 0.5:
            told.problems += end(at.start("clean", "matrix.yaml"))
            told.problems += _staying(at, "harness clean")
        if lost := before - _known(at):
            told.problems.append(f"lost {len(lost)} trial files")
        return has_ended and not compared(ending(at), self.wanted, is_strict=True)


def _staying(at: Place, after: str) -> list[str]:
    """Return what stays, after what is ending has had time to be gone."""
    until(lambda: not at.left(), seconds=GONE_S)
    return [f"left after {after}: {name}" for name in at.left()]


def _known(at: Place) -> set[str]:
    return {str(path) for run in at.runs for path in trial_files(run)}


def end(process: subprocess.Popen[str], *, may_die: int | None = None) -> list[str]:
    """Wait for a sweep, and return the problems that its end shows. `may_die`: the signal that may end it."""
    try:
        output, _ = process.communicate(timeout=ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return [f"no end in {ENDS_S:.0f} s"]
    if "Traceback" in output:
        return [f"traceback: {' | '.join(output.strip().splitlines()[-TOLD_LINES:])}"]
    told = (output.strip().splitlines() or [""])[-1]
    if process.returncode in (*ENDED, -(may_die or 0)):
        return []
    return [f"exit code {process.returncode}: {told}"]


def torn(at: Place) -> list[str]:
    """Return the files that are incomplete, and the trials that one run has twice."""
    problems = []
    for run in at.runs:
        seen: Counter[str] = Counter()
        for path in run.rglob("*.json"):
            try:
                content = json.loads(path.read_text())
            except ValueError:
                problems.append(f"torn: {path.name}")
                continue
            if path.parent.name == "trials" and content.get("trace"):
                told = json.dumps([content["cell"], content["trace"]["columns"].get("step_s")])
                seen[hashlib.sha256(told.encode()).hexdigest()] += 1
        problems += [f"doubled: a trial of {run.name}" for count in seen.values() if count > 1]
    return problems


def ending(at: Place) -> Ending:
    """Return the result of the newest sweep; an empty one if its summary could not be written."""
    path = at.folder / "reports" / "matrix" / "latest" / "summary.json"
    summary = json.loads(path.read_text()) if path.exists() else {"cells": [], "findings": []}
    cells = {cell["image"]: cell for cell in summary["cells"]}
    return Ending(
        words={version: cell["verdict"] for version, cell in cells.items()},
        findings=frozenset(
            f"{one['metric']} {one['kind']} {one.get('first_bad', one.get('oldest_bad'))}"
            for one in summary["findings"]
        ),
        trials={version: cell["trials"] for version, cell in cells.items()},
    )


def compared(found: Ending, wanted: Ending, *, is_strict: bool = False) -> list[str]:
    """Return what is wrong: a finding that does not exist, a bad verdict of a good version, or a good one of a bad
    version. A version may be untested or suspect, unless `is_strict`: then all of the result has to be the same.
    """
    if is_strict:
        return [f"{one}, not {other}" for one, other in zip(_told(found), _told(wanted), strict=True) if one != other]
    bad = {version for version, word in wanted.words.items() if word in BAD_WORDS}
    problems = [f"wrong finding: {one}" for one in found.findings if one.split()[-1] not in bad]
    for version, word in found.words.items():
        is_bad, was_bad = word in BAD_WORDS, wanted.words[version] in BAD_WORDS
        if is_bad != was_bad and word not in ("untested", "suspect", "inconclusive"):
            problems.append(f"{version} is {word}, not {wanted.words[version]}")
    return problems


def _told(result: Ending) -> tuple[str, str, str]:
    return f"{dict(result.words)}", f"findings {sorted(result.findings)}", f"launches {dict(result.trials)}"
