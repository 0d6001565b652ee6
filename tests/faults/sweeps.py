"""Faults at random moments of real sweeps: is a trial lost or doubled, a file torn, a process left, a verdict wrong?

Each time, one fault hits a sweep of four versions, of which the newer two crash:

    harness   SIGKILL to the harness, which is then started again until a sweep ends
    agent     SIGKILL to the agent of the running trial
    scenario  SIGKILL to the scenario
    full      the file system of the run's directory is full for a while
    memory    the harness gets no more memory for a while
    pressure  the harness and its trials together get no more memory for a while: the kernel kills some of them
    clock     the time of day jumps by a day, forward or back, for the harness, its agents and its scenarios
    beside    a second sweep, a watch and `harness clean --images --runs 1h`, on the same host at the same time
    frozen    the Docker Engine is stopped for 5 s (SIGSTOP)
    restarted the Docker Engine is ended or killed, and started again
    cut       the network between the harness and the engine loses every packet for a while

The last three are for Docker: a separate engine is started, as root, with the base image of the machine's engine.
`clock` needs a C compiler and the process engine, `pressure` a memory cgroup and the process engine. After the fault
the sweep is started once more, and its result is compared with that of an undisturbed sweep.
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

from benchmarks.planted_sweeps import ROOT, VERSIONS, Workshop
from harness.run import owners
from harness.run.process import cgroups
from harness.run.process.cgroups import CGROUPS, TrialCgroup
from tests.lab.daemon import Daemon
from tests.serving import free_port

BASE = os.environ.get("HARNESS_BASE", "harness-base:bookworm")
MARK = "FAULTS_TOKEN"
ENDS_S = 300.0
"""Seconds after which a sweep that has not ended counts as a failure."""
FROZEN_S = 5.0
CUT_S = 8.0
OWN_ENGINE = Path("/var/tmp/harness-faults-engine")
ENGINE_NUMBER = 90
"""Number of the engine's bridge; other engines on this machine have other numbers."""
ENDED = (0, 1, 3, 4)
"""Exit codes of a sweep that has a result."""
MAY_DIE = {"harness": signal.SIGKILL, "memory": signal.SIGABRT, "pressure": signal.SIGKILL}
"""Fault -> the signal that may end a sweep; a library written in Rust aborts its process if it gets no memory."""
FULL_BYTES = 3 << 20
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
        time.sleep(0.004)
        if count == 100 and os.environ["CARRIED"] >= "1.2":
            raise RuntimeError("planted")
    return step
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder with a matrix, its runs, and its own temporary files."""

    folder: Path
    environ: Mapping[str, str]
    token: str
    daemon: Daemon | None
    """None: the process engine."""
    cgroup: TrialCgroup | None
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
        joined = [] if self.cgroup is None else ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.cgroup.procs)]
        process = subprocess.Popen(
            [*joined, sys.executable, "-m", "harness", *(command or ("sweep", "matrix.yaml", "--seed", "1"))],
            cwd=self.folder, env=dict(self.environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        self.started.append(process)
        return process

    def processes(self) -> list[psutil.Process]:
        """Return the processes of trials, including those in containers: their environment has our mark."""
        mark = f"{MARK}={self.token}".encode()
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    found.append(process)
        return found

    def left(self) -> list[str]:
        """Return what a sweep left but should not: processes, folders, cgroups and containers."""
        names = [f"process {process.pid}" for process in self.processes()]
        names += [path.name for path in (self.folder / "tmp").glob(f"{owners.PREFIX}*")]
        dead = cgroups.leftovers(self.folder / "tmp", root=CGROUPS)  # those of all sweeps on this machine
        names += [name for name in dead if any(f"_{process.pid}_" in name for process in self.started)]
        if self.cgroup is not None:
            names += [f"cgroup {path.name}" for path in self.cgroup.path.iterdir() if path.is_dir()]
        if self.daemon is not None:
            labels = {run.name for run in self.runs}
            with contextlib.closing(self.daemon.client()) as client:
                names += [
                    each.name or each.short_id
                    for each in client.containers.list(all=True, ignore_removed=True)
                    if each.labels.get("harness.run") in labels
                ]
        return names


def matrix(workshop: Workshop, daemon: Daemon | None, environment: Mapping[str, str]) -> dict[str, Any]:
    carried = {"environment": {"CARRIED": "{version}"}}
    if daemon is not None:
        series: dict[str, Any] = {"carrier": {"images": dict.fromkeys(VERSIONS, BASE), **carried}}
    else:
        series = {"carrier": {**workshop.series("planted", VERSIONS)["carrier"], **carried}}
    scenario = {
        "script": "program.py", "steps": {"first": 64, "budget": 128}, "timeout": "20s", "environment": environment,
    }  # fmt: skip
    return {
        "version": 1,
        "series": series,
        "hosts": {"local": {"engine": "process" if daemon is None else "docker"}},
        "scenarios": {"program": scenario},
        "trials": {"least": 2, "most": 4},
    }


@contextlib.contextmanager
def place(workshop: Workshop, daemon: Daemon | None, fault: str = "") -> Iterator[Place]:
    token = secrets.token_hex(4)
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        (folder / "reports").mkdir()
        (folder / "program.py").write_text(PROGRAM)
        shifted = {"LD_PRELOAD": str(workshop.folder / "clock.so"), "CLOCK_OFFSET": str(folder / "clock")}
        clock = shifted if fault == "clock" else {}
        (folder / "matrix.yaml").write_text(json.dumps(matrix(workshop, daemon, {MARK: token, **clock})))
        environ = {
            **clock, **os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp"), "UV_OFFLINE": "1",
            "HARNESS_CACHE": str(workshop.folder / "cache"), "UV_CACHE_DIR": str(workshop.folder / "uv"),
        }  # fmt: skip
        if daemon is not None:
            environ["DOCKER_HOST"] = daemon.listen[0] if fault == "cut" else daemon.address
        cgroup = cgroups.create(f"faults-{token}") if fault == "pressure" else None
        at = Place(folder=folder, environ=environ, token=token, daemon=daemon, cgroup=cgroup)
        at.clock.write_bytes(bytes(8))
        with _small(folder / "reports") if fault == "full" else contextlib.nullcontext():
            try:
                yield at
            finally:
                for process in at.started:
                    process.kill()
                    process.wait()
                if cgroup is not None:
                    cgroup.remove()


@contextlib.contextmanager
def _small(folder: Path) -> Iterator[None]:
    """Mount a small file system for the run's directory."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES}", "faults", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


# ---------------------------------------------------------------- faults


def kill_harness(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    process.kill()


def kill_agent(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    _kill(at, lambda each, others: each.ppid() not in others)


def kill_scenario(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    _kill(at, lambda each, others: each.ppid() in others)


def _kill(at: Place, chosen: Callable[[psutil.Process, set[int]], bool]) -> None:
    """Kill the first chosen process of a trial, once there is one."""
    end_s = time.monotonic() + 5
    while time.monotonic() < end_s:
        processes = at.processes()
        pids = {each.pid for each in processes}
        for each in processes:
            with contextlib.suppress(psutil.Error):
                if chosen(each, pids):
                    each.kill()
                    return
        time.sleep(0.02)


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
    limit = at.cgroup.path / "memory.max"
    told = dict(line.split() for line in (at.cgroup.path / "memory.stat").read_text().splitlines())
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
    stopped = [each for each in of(at).processes() if each.name() == "dockerd"]
    for each in stopped:
        each.suspend()
    try:
        time.sleep(FROZEN_S)
    finally:
        for each in stopped:
            each.resume()


def restart(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    """End the engine, or kill it with everything that it started, and start it again."""
    daemon = of(at)
    daemon.stop() if rng.random() < 0.5 else daemon.kill()
    time.sleep(rng.uniform(0, 3))
    daemon.start()


def cut(at: Place, process: subprocess.Popen[str], rng: random.Random) -> None:
    """Lose every packet between the harness and the engine, in both directions."""
    port = of(at).listen[0].rpartition(":")[2]
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
    "process": ("harness", "agent", "scenario", "full", "memory", "pressure", "clock", "beside"),
    "docker": ("harness", "agent", "scenario", "frozen", "restarted", "cut"),
}
"""The faults that hit the sweeps of each kind of engine."""


def of(at: Place) -> Daemon:
    if at.daemon is None:
        raise SystemExit("this fault is for Docker")
    return at.daemon


@contextlib.contextmanager
def own_engine() -> Iterator[Daemon]:
    """Yield an engine that nothing else uses, with the base image."""
    daemon = Daemon(folder=OWN_ENGINE, number=ENGINE_NUMBER, listen=(f"tcp://127.0.0.1:{free_port()}",))
    try:
        daemon.start()
        daemon.load([BASE])
        daemon.clear()
        yield daemon
    finally:
        daemon.stop()
        shutil.rmtree(OWN_ENGINE, ignore_errors=True)


# ---------------------------------------------------------------- one sweep


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The result of a sweep: the verdict of each cell, the findings, and the trials by cell."""

    words: Mapping[str, str]
    findings: frozenset[str]
    trials: Mapping[str, int]


def undisturbed(workshop: Workshop, daemon: Daemon | None) -> tuple[Ending, float]:
    """Return the result of an undisturbed sweep, and its seconds; later sweeps find the environments made."""
    with place(workshop, daemon) as at:
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
    daemon: Daemon | None
    wanted: Ending
    usual_s: float

    @classmethod
    def prepared(cls, folder: Path, daemon: Daemon | None) -> Campaign:
        """Return a campaign whose packages are built in a folder, after two undisturbed sweeps."""
        workshop = Workshop(folder=folder)
        workshop.build()
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "clock.so"), str(CLOCK_SOURCE)], check=True)
        wanted, usual_s = undisturbed(workshop, daemon)
        print(f"undisturbed: {dict(wanted.words)}, {sorted(wanted.findings)}, {usual_s:.1f} s", flush=True)
        return cls(workshop=workshop, daemon=daemon, wanted=wanted, usual_s=usual_s)

    def once(self, fault: str, rng: random.Random) -> list[str]:
        """Disturb one sweep up to three times, and return a description of each problem that it showed afterwards."""
        with place(self.workshop, self.daemon, fault) as at:
            problems = [problem for _ in range(rng.randint(1, 3)) for problem in self._disturb(at, fault, rng)]
            problems += end(at.start())  # the next call resumes, and removes what is left
            problems += [*torn(at), *(f"left {name}" for name in at.left())]
            return [*problems, *compared(ending(at), self.wanted)] if at.runs else [*problems, "no run"]

    def _disturb(self, at: Place, fault: str, rng: random.Random) -> list[str]:
        process = at.start()
        beside = len(at.started)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.05, self.usual_s))
        before = _known(at)
        if process.poll() is None:
            FAULTS[fault](at, process, rng)
        problems = end(process, may_die=MAY_DIE.get(fault))
        problems += [problem for each in at.started[beside:] for problem in end(each)]
        lost = before - _known(at)
        return [*problems, f"lost {len(lost)} trial files"] if lost else problems


def _known(at: Place) -> set[str]:
    return {str(path) for run in at.runs for path in (run / "trials").glob("*.json")}


def end(process: subprocess.Popen[str], *, may_die: int | None = None) -> list[str]:
    """Wait for a sweep, and return the problems that its end shows. `may_die`: the signal that may end it."""
    try:
        _, errors = process.communicate(timeout=ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return [f"no end in {ENDS_S:.0f} s"]
    if "Traceback" in errors:
        return [f"traceback: {' | '.join(errors.strip().splitlines()[-TOLD_LINES:])}"]
    told = (errors.strip().splitlines() or [""])[-1]
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
    summary = json.loads((at.folder / "reports" / "matrix" / "latest" / "summary.json").read_text())
    cells = {cell["image"]: cell for cell in summary["cells"]}
    return Ending(
        words={version: cell["verdict"] for version, cell in cells.items()},
        findings=frozenset(f"{one['metric']} {one['kind']} {one.get('first_bad')}" for one in summary["findings"]),
        trials={version: cell["trials"] for version, cell in cells.items()},
    )


def compared(found: Ending, wanted: Ending) -> list[str]:
    """Return what is wrong: a finding that does not exist, a bad verdict of a good version, or a good one of a bad
    version. A version may be untested or suspect.
    """
    problems = [f"wrong finding: {one}" for one in found.findings - wanted.findings]
    for version, word in found.words.items():
        is_bad, was_bad = word in BAD_WORDS, wanted.words[version] in BAD_WORDS
        if (
            word != wanted.words[version]
            and (is_bad != was_bad)
            and word not in ("untested", "suspect", "inconclusive")
        ):
            problems.append(f"{version} is {word}, not {wanted.words[version]}")
    return problems
