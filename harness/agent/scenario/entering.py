"""Enters the Python processes of a program, and makes those ranks that make steps.

The supervisor's variable HARNESS_GROUP says how to reach it: its pid, the name of its socket, and the descriptor, in
its own process, of the file for stacks. A process that runs the program itself starts anew as `start.py rank`, with the
same pid; any other gets the hooks in place. It joins the trial at its first step, or when it fails:

    {"type": "join", "kind": "torch", "number": 2, "world": 4, "birth": 3}      the kind of its steps ("" before one);
              the number and the size of the group, from the environment, or null; the number that multiprocessing gave
              it, or null

The supervisor answers with one line and the descriptor of the table for its samples (SCM_RIGHTS).
"""

import faulthandler
import json
import os
import sys

from .. import ending, libc, samples

VARIABLE = "HARNESS_GROUP"
NUMBERS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
TRACKERS = ("multiprocessing.resource_tracker", "multiprocessing.semaphore_tracker", "torch_shm_manager")
TAKES_ONE = "XWcm"  # the interpreter's options that take an argument


def enter(root):
    """Measure this process from inside, if it is one of the program's."""
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    start = os.path.join(root, "start.py")
    if start in words or any(tracker in word for word in words for tracker in TRACKERS):
        return
    job = read_job(root)
    options, args = _own_args(words, job["program"], root)
    if args is not None:
        os.execv(sys.executable, [words[0], *options, "-B", start, "rank", *args])
    from . import program_run

    program_run.ProgramRun(job, root).install()


def read_job(root):
    with open(os.path.join(root, "job.json"), encoding="utf-8") as file:
        return json.load(file)


def _own_args(words, program, root):
    """Return the interpreter's options and the arguments of the program, None if this process runs something else."""
    place = 1
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        word = words[place]
        takes = next((at for at, letter in enumerate(word) if letter in TAKES_ONE and not word.startswith("--")), None)
        if takes is not None and word[takes] in "cm":
            module = word[takes + 1 :] or "".join(words[place + 1 : place + 2])
            rest = words[place + (1 if word[takes + 1 :] else 2) :]
            is_own = word[takes] == "m" and module == program["module"]
            return words[1:place], rest if is_own else None
        place += 2 if takes == len(word) - 1 else 1
    if not program["path"] or place >= len(words):
        return [], None
    path = os.path.join(root, program["path"])
    is_own = os.path.realpath(words[place]) == os.path.realpath(path)
    return words[1:place], words[place + 1 :] if is_own else None


def write_stacks():
    """Write the stacks of all threads to the supervisor's file when it asks, or when the process dies by a signal.
    Return whether this process is the one that the supervisor started."""
    supervisor, _, stacks_fd = os.environ[VARIABLE].split()
    path = "/proc/%s/fd/%s" % (supervisor, stacks_fd)
    fd = libc.raised(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
    faulthandler.enable(file=fd, all_threads=True)
    faulthandler.register(ending.STACKS_SIGNAL, file=fd, all_threads=True)
    return os.getppid() == int(supervisor)


def join(kind, shape):
    """Join the trial and return (fd of the conversation, table). Raises OSError if the supervisor is gone."""
    import socket  # takes milliseconds, and most processes never join

    processes = sys.modules.get("multiprocessing.process")
    identity = processes.current_process()._identity if processes else ()
    message = {
        "type": "join",
        "kind": kind,
        "number": _from_environment(NUMBERS),
        "world": _from_environment(SIZES),
        "birth": identity[-1] if identity else None,
    }
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect("\0" + os.environ[VARIABLE].split()[1])
    link.sendall(json.dumps(message).encode("ascii") + b"\n")
    _, ancillary, _, _ = link.recvmsg(64, socket.CMSG_SPACE(4))
    if not ancillary:
        raise OSError("refused")
    table_fd = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
    table = samples.Table(table_fd, *shape)
    os.close(table_fd)
    return libc.raised(link.detach()), table


def _from_environment(names):
    values = [os.environ[name] for name in names if name in os.environ]
    return int(values[0]) if values and values[0].isdigit() and len(values[0]) < 7 else None
