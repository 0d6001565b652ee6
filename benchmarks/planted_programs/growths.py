"""What a bad version leaves behind: memory, files, threads, processes. `amount` is a count or KiB a step."""

import ctypes
import glob
import mmap
import os
import signal
import socket
import subprocess
import tempfile
import threading

from planted_carrier import own_path, planted, work

STEP_US = 200
PAGE = 4096
KEPT = []


def setup(program, amount=0.0):
    """A step that loses `amount` on average, in pieces of what the mechanism can lose at once."""
    piece, lose = PROGRAMS[program]
    rate, owed = planted(amount), 0.0

    def step():
        nonlocal owed
        work(STEP_US)
        owed += rate
        while owed >= piece * (1 - 1e-9):
            owed -= piece
            lose()

    return step


def teardown():
    """What lies in /dev/shm outlives the launch: a sweep's launches together would fill it."""
    for path in glob.glob(own_path("/dev/shm", "*")):
        os.remove(path)


# ---------------------------------------------------------------- memory


def python_objects():
    KEPT.append(bytearray(1024 - 64))  # and what an object and its place in the list take


def native_heap():
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    ctypes.memset(malloc(1024 - 16), 1, 1024 - 16)  # and the allocator's own bytes


# ---------------------------------------------------------------- open files


def open_file():
    KEPT.append(open("/dev/null"))


def open_socket():
    KEPT.append(socket.socket())


def open_pipe():
    """Both ends: two open files."""
    os.pipe()


# ---------------------------------------------------------------- threads and processes


def waiting_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def pending_timer():
    """A timeout of an hour for each request, never cancelled."""
    timer = threading.Timer(3600, int)
    timer.daemon = True
    timer.start()


def sleeping_program():
    KEPT.append(subprocess.Popen(["sleep", "120"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


def forked_worker():
    if os.fork() == 0:
        signal.alarm(120)
        while True:
            signal.pause()


def unreaped_fork():
    if os.fork() == 0:
        os._exit(0)


def unreaped_program():
    KEPT.append(subprocess.Popen(["true"]))


# ---------------------------------------------------------------- shared memory: 4 KiB at once


def shm_segment():
    """A file of its own in /dev/shm each time."""
    with open(own_path("/dev/shm", "segment-%d" % len(KEPT)), "wb") as file:
        file.write(b"x" * PAGE)
    KEPT.append(None)


def shm_one_file():
    with open(own_path("/dev/shm", "ring"), "ab") as file:
        file.write(b"x" * PAGE)


def shm_without_name():
    """As torch shares tensors: the file is removed at once and lives on in the mapping."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(PAGE)
        KEPT.append(mmap.mmap(file.fileno(), PAGE))
    KEPT[-1][:] = b"x" * PAGE


# ---------------------------------------------------------------- files on disk: 4 KiB at once


def mkstemp():
    number, _ = tempfile.mkstemp()
    os.write(number, b"x" * PAGE)
    os.close(number)


def file_in_cwd():
    with open("events.%d" % len(KEPT), "wb") as file:
        file.write(b"x" * PAGE)
    KEPT.append(None)


def appended_log():
    """One log, a line of 256 bytes a time."""
    with open("train.log", "a") as file:
        file.write("x" * 255 + "\n")


def file_in_tmp():
    """In /tmp by its name, whatever TMPDIR says."""
    with open(own_path("/tmp", "cache-%d" % len(KEPT)), "wb") as file:
        file.write(b"x" * PAGE)
    KEPT.append(None)


PROGRAMS = {  # how much is lost at once, in the signal's unit, and how
    "leak_python": (1, python_objects),
    "leak_native": (1, native_heap),
    "files": (1, open_file),
    "sockets": (1, open_socket),
    "pipes": (2, open_pipe),
    "threads": (1, waiting_thread),
    "timers": (1, pending_timer),
    "processes_programs": (1, sleeping_program),
    "processes_forked": (1, forked_worker),
    "zombies_forked": (1, unreaped_fork),
    "zombies_programs": (1, unreaped_program),
    "shm_segments": (4, shm_segment),
    "shm_one_file": (4, shm_one_file),
    "shm_without_name": (4, shm_without_name),
    "disk_mkstemp": (4, mkstemp),
    "disk_cwd": (4, file_in_cwd),
    "disk_log": (0.25, appended_log),
    "disk_tmp": (4, file_in_tmp),
}
