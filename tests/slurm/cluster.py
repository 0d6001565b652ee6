"""A separate Slurm: its files, its daemons, and what it must not leave behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests import nightly
from tests.waiting import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "scancel")
READY_S = 30.0
ENDS_S = 15.0
FIRST_PORT = 27800
CGROUPS = Path("/sys/fs/cgroup")
NODE_MEMORY_MIB = 2000
LOST_AFTER_S = 10
"""Seconds of silence after which a node is lost (300 s is Slurm's default)."""

CONF = """\
ClusterName=harness{number}
SlurmctldHost={machine}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
SlurmdTimeout={lost_after_s}
KillWait=2
OverTimeLimit=0
MailProg=/bin/true
SlurmdParameters=config_overrides
GresTypes=gpu
PlugStackConfig={folder}/plugstack.conf
{nodes}
PartitionName=gpu Nodes={names} Default=YES MaxTime=4:00:00 PriorityTier=1 State=UP
PartitionName=urgent Nodes={names} MaxTime=4:00:00 PriorityTier=9 State=UP
"""
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"


class ClusterError(Exception):
    """Raised if no Slurm can be started on this machine; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Three nodes, all in `folder`. `number` is unique among all clusters of the machine: names and ports contain it.

    Two nodes have a GPU of one type, and the third has two of another type.
    """

    folder: Path
    number: int = 1

    @property
    def nodes(self) -> tuple[str, str, str]:
        return (f"c{self.number}n1", f"c{self.number}n2", f"c{self.number}n3")

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which Slurm's commands use this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        """Start everything and wait until every node is idle. Raises ClusterError."""
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing or os.getuid() != 0:
            raise ClusterError(f"no root, or not installed: {' '.join(missing) or 'nothing'}; see tools/slurm need")
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        self._write_files()
        self.start_munge()
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        if not until(lambda: self._states() == {"idle"}, seconds=READY_S):
            raise ClusterError(f"the nodes are not idle: {self._states()}; see {self.folder}/*.log")

    def start_munge(self) -> None:
        files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munged.pid", "log-file": "munged.log"}
        places = [f"--{name}={self.folder / file}" for name, file in {**files, "seed-file": "munge.seed"}.items()]
        _run(["munged", "--force", *places], self.environ)

    def _write_files(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        port = FIRST_PORT + 10 * self.number
        cards = (("rtx3090", 1, "driver535"), ("rtx3090", 1, "driver535"), ("rtx4090", 2, "driver550"))
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port + 1 + place}"
            f" CPUs={os.cpu_count()} RealMemory={NODE_MEMORY_MIB} Gres=gpu:{card}:{count} Features={feature}"
            for place, (node, (card, count, feature)) in enumerate(zip(self.nodes, cards, strict=True))
        )
        gres = "\n".join(
            f"NodeName={node} Name=gpu Type={card} File=/dev/tty[{place}-{place + count - 1}]"
            for place, (node, (card, count, _)) in enumerate(zip(self.nodes, cards, strict=True))
        )
        self.conf.write_text(
            CONF.format(
                number=self.number, machine=socket.gethostname(), port=port, folder=self.folder, nodes=nodes,
                names=",".join(self.nodes), lost_after_s=LOST_AFTER_S,
            )
        )  # fmt: skip
        (self.folder / "gres.conf").write_text(f"{gres}\n")
        (self.folder / "plugstack.conf").touch()
        (self.folder / "cgroup.conf").write_text(CGROUP_CONF)

    def start_controller(self) -> None:
        _run(["slurmctld"], self.environ)

    def stop_controller(self, number: int = signal.SIGKILL) -> None:
        """Send slurmctld this signal and wait for its end; jobs and their steps go on without it."""
        self._end("slurmctld.pid", "slurmctld", number)

    def start_node(self, node: str) -> None:
        _run(["slurmd", "-N", node], self.environ)

    def lose_node(self, node: str) -> None:
        """Kill a node's slurmd and everything under it, as if the machine lost power.

        At night slurmctld notices by itself, after LOST_AFTER_S or more; by day it is informed, as by an administrator.
        """
        found = self._process(f"{node}.pid", "slurmd")
        steps = [
            each for each in psutil.process_iter() if _name(each).startswith("slurmstepd: [") and node in _name(each)
        ]
        lost = [each for step in steps for each in [step, *_below(step)]]
        for process in ([found] if found else []) + lost:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if not nightly.NIGHTLY:
            self.slurm("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")

    def stop_munge(self) -> None:
        self._end("munged.pid", "munged")

    def slurm(self, *command: str) -> str:
        """Return the output of one of Slurm's commands."""
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=True, timeout=30)
        return done.stdout.strip()

    def jobs(self) -> list[str]:
        """The jobs that are pending, running or ending."""
        return self.slurm("squeue", "--noheader", "--format=%i").split()

    def clear(self) -> None:
        """Cancel all jobs and bring back all nodes."""
        for job in self.jobs():
            subprocess.run(["scancel", job], env=self.environ, check=False, capture_output=True)
        for node in self.nodes:
            if self._process(f"{node}.pid", "slurmd") is None:
                self.start_node(node)
        if not until(lambda: not self.jobs() and self._states() == {"idle"}, seconds=60):
            raise ClusterError(f"jobs do not end: {self.jobs()}, nodes {self._states()}")

    def _states(self) -> set[str]:
        with contextlib.suppress(subprocess.SubprocessError):
            return set(self.slurm("sinfo", "--noheader", "--Node", "--partition=gpu", "--format=%T").split())
        return set()

    def stop(self) -> None:
        """End everything and remove every trace of it."""
        if self._process("slurmctld.pid", "slurmctld"):
            with contextlib.suppress(subprocess.SubprocessError):
                for job in self.jobs():
                    subprocess.run(["scancel", job], env=self.environ, check=False, capture_output=True)
                until(lambda: not self.jobs(), seconds=ENDS_S)
        for node in self.nodes:
            self._end(f"{node}.pid", "slurmd")
        self.stop_controller()  # nothing of it is kept, and it takes 12 s to end by itself
        self.stop_munge()
        for node in self.nodes:
            for top in CGROUPS.glob(f"*/slurm_{node}"):
                for path in (*sorted(top.rglob("*/"), reverse=True), top):
                    with contextlib.suppress(OSError):
                        path.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, pid_file: str, name: str, number: int = signal.SIGKILL) -> None:
        process = self._process(pid_file, name)
        if process is not None:
            process.send_signal(number)
            until(lambda: self._process(pid_file, name) is None, seconds=ENDS_S)

    def _process(self, pid_file: str, name: str) -> psutil.Process | None:
        """Return the daemon that wrote the file, if it still runs: another process may have its pid by now."""
        with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
            process = psutil.Process(int((self.folder / pid_file).read_text()))
            gone = process.name() != name or process.status() == psutil.STATUS_ZOMBIE
            return None if gone else process
        return None


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline()) or process.name()
    return ""


def _below(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _run(command: list[str], environ: Mapping[str, str]) -> None:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise ClusterError(f"{command[0]} does not start: {(done.stderr or done.stdout).strip()[-500:]}")
