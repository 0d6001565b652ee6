"""Makes the Python processes of a program ranks, if they make steps (hook/sitecustomize.py enters them).

A process joins the trial at its first step, or when it fails:

    {"type": "join", "kind": "torch", "number": 2, "world": 4, "birth": 3, "tells": true}
              the kind of its steps ("" before one); the number and the size of the group, from the environment, or
              null; the number that multiprocessing gave it, or null; whether it tells its end, unless it is killed or
              leaves by os._exit

The supervisor answers with one line and the descriptor of the table for its samples (SCM_RIGHTS).
"""

import faulthandler
import json
import os
import sys

from .. import libc, samples

VARIABLE = "HARNESS_GROUP"
NUMBERS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def write_stacks():
    """Write the stacks of all threads to the supervisor's file when it asks, or when the process dies by a signal.
    Return whether this process is the one that the supervisor started."""
    supervisor, _, stacks_fd = os.environ[VARIABLE].split("\t")[:3]
    path = "/proc/%s/fd/%s" % (supervisor, stacks_fd)
    fd = libc.raised(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
    faulthandler.enable(file=fd, all_threads=True)
    faulthandler.register(libc.STACKS_SIGNAL, file=fd, all_threads=True)
    return os.getppid() == int(supervisor)


def join(kind, shape, tells):
    """Join the trial and return (fd of the conversation, table). Raises OSError if the supervisor is gone."""
    import socket  # takes milliseconds, and most processes never join

    processes = sys.modules.get("multiprocessing.process")
    identity = processes.current_process()._identity if processes else ()
    number, world = numbered(os.environ)
    message = {
        "type": "join",
        "kind": kind,
        "number": number,
        "world": world,
        "birth": identity[-1] if identity else None,
        "tells": tells or bool(identity and hasattr(processes.BaseProcess.run, "tells")),
    }
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect("\0" + os.environ[VARIABLE].split("\t")[1])
    link.sendall(json.dumps(message).encode("ascii") + b"\n")
    _, ancillary, _, _ = link.recvmsg(64, socket.CMSG_SPACE(4))
    if not ancillary:
        raise OSError("refused")
    table_fd = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
    table = samples.Table(table_fd, *shape)
    os.close(table_fd)
    return libc.raised(link.detach()), table


def numbered(environment):
    """Return the number of a rank and the size of its group, each None if the environment does not tell."""
    if "TF_CONFIG" in environment and not any(name in environment for name in NUMBERS[:-1]):
        # All that a step of a batch job starts inherits its SLURM_PROCID.
        found = _numbered_by_tensorflow(environment["TF_CONFIG"])
        if found is not None:
            return found
    return [_first_number(environment, names) for names in (NUMBERS, SIZES)]


def _numbered_by_tensorflow(config):
    """Return the place of a task among all that train, and their number; None if the text does not tell. TensorFlow
    counts the chief before the workers."""
    try:
        config = json.loads(config)
        tasks = [(kind, index) for kind in ("chief", "worker") for index in range(len(config["cluster"].get(kind, ())))]
        return [tasks.index((config["task"]["type"], int(config["task"]["index"]))), len(tasks)]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _first_number(environment, names):
    values = [environment[name] for name in names if name in environment]
    return int(values[0]) if values and values[0].isdecimal() and len(values[0]) < 7 else None
