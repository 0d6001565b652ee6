"""Ends what a command that runs in place starts outside its own processes: a compose project, jobs of Slurm, and what
its stop command ends. The agent uses it if the harness is gone, and the harness whenever it removes a trial's folder.

Such a command runs in the user's own environment, in which `variables` name the trial: compose and sbatch give this
name to what they start, so that it can be found without the process that started it.
"""

import collections.abc
import json
import os
import signal
import subprocess

LIMIT_S = 60.0
"""Most seconds that each command may take."""
PASSES = 3
"""The number of looks for what is left: an engine may still start what a killed command has asked for."""
MARKER = "HARNESS_TRIAL"
DONE = "stopped"
"""Name of the file in a trial's folder that says that all this is done."""
PROJECT, JOB = "COMPOSE_PROJECT_NAME", "SBATCH_JOB_NAME"
ENGINES = ("docker", "podman")
KINDS = {
    "container": (("ps", "--all"), ("rm", "--force", "--volumes")),
    "network": (("network", "ls"), ("network", "rm")),
    "volume": (("volume", "ls"), ("volume", "rm")),
}
"""The commands that list and remove the parts of a project, in this order."""


def variables(root: str) -> "dict[str, str]":
    """Return the variables that name a trial, by its folder, for its processes, for compose and for Slurm."""
    name = os.path.basename(root).replace(".", "-")  # compose allows no dots
    return {MARKER: root, PROJECT: name, JOB: name}


def stop(root: str) -> "list[str]":
    """End what the trial in a folder started elsewhere, unless that is done, and return what was found. A trial that
    does not run in place has nothing to end. Two processes may call this at the same time."""
    import fcntl  # here, because Windows lacks it, where reports can be read

    try:
        with open(os.path.join(root, "job.json"), encoding="utf-8") as file:
            order = json.load(file).get("in_place")
        if not order:
            return []
        with open(os.path.join(root, DONE), "a+") as done:
            fcntl.flock(done, fcntl.LOCK_EX)
            if os.fstat(done.fileno()).st_size:
                return []
            if order["stop"]:
                environment = dict(os.environ, **dict(variables(root), **order["variables"]))
                _run_stop(order["stop"], environment, order["folder"])
            found = _end_all(variables(root)[PROJECT])
            done.write("done")
    except (OSError, ValueError):
        return []
    return found


def _end_all(name: str) -> "list[str]":
    """End the compose project and the jobs of this name; return what there was."""
    found = []  # type: list[str]
    for _ in range(PASSES):
        more = list(_end_named(name))
        found += more
        if not more:
            break
    return found


def _run_stop(words: "list[str]", environment: "dict[str, str]", folder: str) -> None:
    try:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError:
        return
    try:
        process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end_named(name: str) -> "collections.abc.Iterator[str]":
    """Remove the containers, networks and volumes of a compose project, and the jobs of this name; yield each."""
    for engine in ENGINES:
        for kind, (listing, removal) in KINDS.items():
            label = "label=com.docker.compose.project=%s" % name
            yield from _removed(kind, [engine, *listing, "--quiet", "--filter", label], [engine, *removal])
    yield from _removed("job", ["squeue", "--noheader", "--format=%i", "--name=%s" % name], ["scancel"])


def _removed(kind: str, listing: "list[str]", removal: "list[str]") -> "collections.abc.Iterator[str]":
    names = _output(listing).split()
    if names:
        _output(removal + names)
    for name in names:
        yield "%s %s" % (kind, name)


def _output(command: "list[str]") -> str:
    """Run a command and return what it prints on stdout; "" if there is no such command, or if it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIMIT_S,
            check=False, universal_newlines=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
