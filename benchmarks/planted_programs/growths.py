"""Programs whose bad versions leave something behind: memory, files, threads, processes. `amount` is a count or KiB a
step.

Good versions do the same and give it back immediately, so that versions differ only in the loss.
"""

import ctypes
import glob
import itertools
import mmap
import multiprocessing
import os
import signal
import socket
import subprocess
import tempfile
import threading

from planted_carrier import BAD, own_path, work

STEP_US = 200
PIECE = 16 << 10  # bytes of a file
LIFE_S = 120  # lifetime of a process that nothing ends
KEPT = []  # keeps alive what would otherwise be given back
NUMBERS = itertools.count()
MALLOC, FREE = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
MALLOC.restype = ctypes.c_void_p
FREE.argtypes = [ctypes.c_void_p]


def setup(program, amount=0.0):
    """Return a step that takes `amount` on average, in pieces of the size that the mechanism can take."""
    piece, take = PROGRAMS[program]
    owed = 0.0

    def step():
        nonlocal owed
        work(STEP_US)
        owed += amount
        while owed >= piece * (1 - 1e-9):
            owed -= piece
            give_back = take()
            if not BAD:
                give_back()
                KEPT.clear()

    return step


def teardown():
    """Remove the files in /dev/shm, which outlive the launch: the launches of a sweep together would fill it."""
    for path in glob.glob(own_path("/dev/shm", "*")):
        os.remove(path)


def written(path, mode="wb"):
    with open(path, mode) as file:
        file.write(b"x" * PIECE)
    return path


# ---------------------------------------------------------------- memory: 1 KiB, the allocators' own bytes among it


def python_objects():
    KEPT.append(bytearray(1024 - 64))
    return KEPT[-1].clear


def native_heap():
    block = MALLOC(1024 - 16)
    ctypes.memset(block, 1, 1024 - 16)
    return lambda: FREE(block)


# ---------------------------------------------------------------- open files


def open_file():
    KEPT.append(open("/dev/null"))
    return KEPT[-1].close


def open_socket():
    KEPT.append(socket.socket())
    return KEPT[-1].close


def open_pipe():
    """Return both ends of a pipe: two open files."""
    ends = os.pipe()
    return lambda: [os.close(end) for end in ends]


# ---------------------------------------------------------------- threads and processes


def waiting_thread():
    told = threading.Event()
    thread = threading.Thread(target=told.wait, daemon=True)
    thread.start()
    return lambda: (told.set(), thread.join())


def pending_timer():
    """Start a timeout of an hour, as for each request; good versions cancel it."""
    timer = threading.Timer(3600, int)
    timer.daemon = True
    timer.start()
    return lambda: (timer.cancel(), timer.join())


def sleeping_program():
    process = subprocess.Popen(["sleep", str(LIFE_S)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    KEPT.append(process)
    return lambda: (process.kill(), process.wait())


def forked_worker():
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIFE_S)
        while True:
            signal.pause()
    return lambda: (os.kill(pid, signal.SIGKILL), os.waitpid(pid, 0))


def ended_fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return lambda: os.waitpid(pid, 0)


def ended_program():
    KEPT.append(subprocess.Popen(["true"]))
    return KEPT[-1].wait


# ---------------------------------------------------------------- shared memory


def serve(pipe):
    """Keep what is sent until "clear" is; run in a worker."""
    kept = []
    while True:
        size = pipe.recv()
        if size:
            kept.append(b"x" * size)
        else:
            kept.clear()
        pipe.send(None)


def in_worker(start):
    """Return a function that loses 8 KiB in a worker, which is started as `start` says with the first loss."""
    pipes = []

    def ask(size):
        pipes[0].send(size)
        pipes[0].recv()

    def take():
        if not pipes:
            context = multiprocessing.get_context(start)
            ours, theirs = context.Pipe()
            context.Process(target=serve, args=(theirs,), daemon=True).start()
            pipes.append(ours)
        ask(8 << 10)
        return lambda: ask(0)

    return take


def shm_segment():
    """Make a new file in /dev/shm each time."""
    path = written(own_path("/dev/shm", "segment-%d" % next(NUMBERS)))
    return lambda: os.remove(path)


def shm_one_file():
    path = written(own_path("/dev/shm", "ring"), "ab")
    return lambda: os.truncate(path, 0)


def shm_without_name():
    """Share memory as torch does: the file is removed immediately, and lives on in the mapping, which holds it open."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(PIECE)
        KEPT.append(mmap.mmap(file.fileno(), PIECE))
    KEPT[-1][:] = b"x" * PIECE
    return KEPT[-1].close


# ---------------------------------------------------------------- files on disk


def mkstemp():
    number, path = tempfile.mkstemp()
    os.write(number, b"x" * PIECE)
    os.close(number)
    return lambda: os.remove(path)


def file_in_cwd():
    path = written("events.%d" % next(NUMBERS))
    return lambda: os.remove(path)


LOG = []


def appended_log():
    """Append a line of 256 bytes to one log, which a good version starts again each time."""
    if not LOG:
        LOG.append(open("train.log", "ab", buffering=0))
    LOG[0].write(b"x" * 255 + b"\n")
    return lambda: LOG[0].truncate(0)


def file_in_tmp():
    """Make a file in /tmp, whatever TMPDIR says."""
    path = written(own_path("/tmp", "cache-%d" % next(NUMBERS)))
    return lambda: os.remove(path)


PROGRAMS = {  # (the size of one piece in the signal's unit, how to take it)
    "leak_python": (1, python_objects),
    "leak_native": (1, native_heap),
    "files": (1, open_file),
    "sockets": (1, open_socket),
    "pipes": (2, open_pipe),
    "threads": (1, waiting_thread),
    "timers": (1, pending_timer),
    "processes_programs": (1, sleeping_program),
    "processes_forked": (1, forked_worker),
    "zombies_forked": (1, ended_fork),
    "zombies_programs": (1, ended_program),
    "workers_forked": (8, in_worker("fork")),
    "workers_spawned": (8, in_worker("spawn")),
    "shm_segments": (16, shm_segment),
    "shm_one_file": (16, shm_one_file),
    "shm_without_name": (16, shm_without_name),
    "disk_mkstemp": (16, mkstemp),
    "disk_cwd": (16, file_in_cwd),
    "disk_log": (0.25, appended_log),
    "disk_tmp": (16, file_in_tmp),
}
