"""Runs Slurm's commands on this machine, and explains their failures."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

from harness.errors import EngineUnreachable, InfrastructureError
from harness.run.waiting import run_command

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LD_LIBRARY_PATH")
"""Variables of the caller that are passed to Slurm's commands. The variables that Slurm sets in a job are not passed,
because they would change how the commands behave."""
OF_SLURM = re.compile(r"SLURM_CONF(_SERVER)?|SALLOC_\w+")
OLDEST = (20, 11)
LIMIT_S = 60
"""Time limit of one command in seconds."""
REMEDIES: tuple[tuple[str, str], ...] = (
    (r"[Mm]unge|Protocol authentication error", "munge does not run on this machine, or its key differs from the"
     " cluster's; see `systemctl status munge`"),
    (r"Unable to contact slurm controller|Unable to establish (control|config)",
     "the cluster's slurmctld does not answer; see `scontrol ping`"),
    (r"configuration (source|file)|[Uu]nable to open.*slurm\.conf",
     "this machine has no slurm.conf; start the harness on a login node of the cluster, or set SLURM_CONF"),
    (r"[Ii]nvalid partition", "the cluster has no such partition; `sinfo --summarize` lists the ones that exist"),
    (r"[Ii]nvalid (generic resource|gres|GRES|Trackable RES)",
     'no node has such a gres; `sinfo --format="%R %G"` lists the ones that exist'),
    (r"[Ii]nvalid feature", 'no node has such a feature; `sinfo --format="%R %f"` lists the ones that exist'),
    (r"Requested node configuration is not available",
     'no node has all of these; `sinfo --format="%N %R %G %f %c %m"` lists what exists'),
    (r"[Ii]nvalid node name", "the cluster has no such node; `sinfo --Node` lists the ones that exist"),
    (r"[Ii]nvalid account", "this user may not use that account or partition; see `sacctmgr show associations`"),
    (r"[Ii]nvalid qos", "this user may not use that quality of service; see `sacctmgr show associations`"),
    (r"time limit is (invalid|missing)|Requested time limit", "the partition's time limit is shorter; lower hold.time"),
    (r"unrecognized option '--container", "srun on this machine does not have pyxis; see `srun --help`, or choose"
     " another `container:`"),
    (r"[Nn]o space left|[Qq]uota exceeded", "the disk is full; free some space there, or choose another `images:`"),
)  # fmt: skip


SAYS_NOTHING = re.compile(r"^harness-oom|: Exited with exit code|(Run|See|Try) ['\"].* --help['\"]")


def slurm_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the caller's environment that is passed to Slurm's commands and so to steps."""
    return {name: value for name, value in environ.items() if name in PASSED_ON or OF_SLURM.fullmatch(name)}


def run_slurm(command: list[str], *, environ: Mapping[str, str], place: object) -> str:
    """Run a quick command of Slurm and return its output. Raises InfrastructureError."""
    try:
        done = run_command(command, environment=slurm_environment(environ), limit_s=LIMIT_S)
    except FileNotFoundError as error:
        raise no_command(command[0], place=place) from error
    except TimeoutError as error:
        raise InfrastructureError(f"{command[0]}: no answer within {LIMIT_S} s", place=place) from error
    except PermissionError as error:
        raise InfrastructureError(f"{command[0]}: {error.strerror}", place=place) from error
    if done.returncode != 0:
        raise InfrastructureError(f"{command[0]}: {slurm_complaint(done.stderr)}", place=place)
    return done.stdout


def slurm_version(*, environ: Mapping[str, str], place: object) -> str:
    """Return Slurm's name and version, such as `slurm-wlm 22.05.8`. Raises InfrastructureError if it is too old."""
    text = run_slurm(["sinfo", "--version"], environ=environ, place=place).strip()
    numbers = re.search(r"(\d+)\.(\d+)", text)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise InfrastructureError(f"{text} is too old: `srun --overlap` needs Slurm 20.11 or later", place=place)
    return text


def no_command(program: str, *, place: object) -> EngineUnreachable:
    """Return the error for a command of Slurm that this machine does not have."""
    return EngineUnreachable(
        f"no {program} on the PATH of this machine; start the harness on a login node of the cluster", place=place
    )


def slurm_complaint(stderr: str) -> str:
    """Return the error message of a Slurm command from its stderr, in one line, with a remedy if one is known."""
    kept = [line.strip() for line in stderr.splitlines() if line.strip() and not SAYS_NOTHING.search(line)]
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in kept]
    for pattern, remedy in REMEDIES:
        for line in lines:
            if re.search(pattern, line):
                return f"{line[:300]}: {remedy}"
    return "; ".join(dict.fromkeys(lines[-3:]))[:300] or "it failed without a message"


def run_slurm_quietly(command: list[str], *, environ: Mapping[str, str]) -> None:
    """Run a command and ignore its failure: a job to cancel, for example, may have ended already."""
    with contextlib.suppress(InfrastructureError, OSError):
        run_slurm(command, environ=environ, place="slurm")
