"""Slurm's commands on this machine, and what they mean when they fail."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from harness.errors import EngineUnreachable, InfrastructureError
from harness.run.waiting import Beat, run_command

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LD_LIBRARY_PATH")
"""Variables of the caller that are passed on. Slurm's others are not: inside a job they would change its commands."""
OF_SLURM = re.compile(r"SLURM_CONF(_SERVER)?|SALLOC_\w+")
OLDEST = (20, 11)
LIMIT_S = 60
"""Seconds that a command may take that only asks."""
REMEDIES: tuple[tuple[str, str], ...] = (
    (r"[Mm]unge|Protocol authentication error", "munge does not run on this machine, or has another key than the"
     " cluster; see `systemctl status munge`"),
    (r"Unable to contact slurm controller|Unable to establish (control|config)",
     "the cluster's slurmctld does not answer; see `scontrol ping`"),
    (r"configuration (source|file)|[Uu]nable to open.*slurm\.conf",
     "this machine has no slurm.conf; start the harness on a login node of the cluster, or set SLURM_CONF"),
    (r"[Ii]nvalid partition", "the cluster has no such partition; `sinfo --summarize` lists those that there are"),
    (r"[Ii]nvalid (generic resource|gres|GRES|Trackable RES)",
     'no node has such a gres; `sinfo --format="%R %G"` lists those that there are'),
    (r"[Ii]nvalid feature", 'no node has such a feature; `sinfo --format="%R %f"` lists those that there are'),
    (r"Requested node configuration is not available",
     'no node has all of this; `sinfo --format="%N %R %G %f %c %m"` lists what there is'),
    (r"[Ii]nvalid node name", "the cluster has no such node; `sinfo --Node` lists those that there are"),
    (r"[Ii]nvalid account", "this user may not use that account or partition; see `sacctmgr show associations`"),
    (r"[Ii]nvalid qos", "this user may not use that quality of service; see `sacctmgr show associations`"),
    (r"time limit is (invalid|missing)|Requested time limit", "the partition's time limit is shorter; lower hold.time"),
    (r"unrecognized option '--container", "srun of this machine has no pyxis; see `srun --help`, or choose another"
     " `container:`"),
    (r"[Nn]o space left|[Qq]uota exceeded", "the disk is full; make room there, or choose another `images:`"),
)  # fmt: skip


SAYS_NOTHING = re.compile(r"^harness-oom|: Exited with exit code|(Run|See|Try) ['\"].* --help['\"]")


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what Slurm's commands get of the caller's environment; steps inherit it."""
    return {name: value for name, value in environ.items() if name in PASSED_ON or OF_SLURM.fullmatch(name)}


def asked(command: list[str], *, environ: Mapping[str, str], place: object, beat: Beat = lambda: None) -> str:
    """Run a command that only asks; return what it prints. Raises InfrastructureError, and what `beat` raises."""
    try:
        done = run_command(["timeout", str(LIMIT_S), *command], environment=environment(environ), beat=beat)
    except FileNotFoundError as error:
        raise missing(command[0], place=place) from error
    if done.returncode == 127:
        raise missing(command[0], place=place)
    if done.returncode != 0:
        why = f"no answer in {LIMIT_S} s" if done.returncode == 124 else explained(done.stderr)
        raise InfrastructureError(f"{place}: {command[0]}: {why}")
    return done.stdout


def version(*, environ: Mapping[str, str], place: object) -> str:
    """Return Slurm's name and version, such as `slurm-wlm 22.05.8`. Raises InfrastructureError if it is too old."""
    told = asked(["sinfo", "--version"], environ=environ, place=place).strip()
    found = re.search(r"(\d+)\.(\d+)", told)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        raise InfrastructureError(f"{place}: {told} is too old: `srun --overlap` needs Slurm 20.11 or later")
    return told


def missing(program: str, *, place: object) -> EngineUnreachable:
    return EngineUnreachable(
        f"{place}: no {program} on the PATH of this machine; start the harness on a login node of the cluster"
    )


def explained(stderr: str) -> str:
    """Return what a command of Slurm's complains of, in one line, with what to do where that is known."""
    kept = [line.strip() for line in stderr.splitlines() if line.strip() and not SAYS_NOTHING.search(line)]
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in kept]
    for pattern, remedy in REMEDIES:
        for line in lines:
            if re.search(pattern, line):
                return f"{line[:300]}: {remedy}"
    return "; ".join(dict.fromkeys(lines[-3:]))[:300] or "it failed and said nothing"


def quietly(command: list[str], *, environ: Mapping[str, str]) -> None:
    """Run a command whose failure is of no matter: what it ends may have ended by itself."""
    try:
        subprocess.run(
            command, env=environment(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return
