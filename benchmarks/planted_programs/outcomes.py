"""Programs whose launches fail in a bad version: in a step, or only after their last step."""

import atexit
import ctypes
import os
import signal
import threading
import time

from planted_carrier import BAD, work

STEP_US = 200
STRIKES = 20
AT_TEARDOWN = []


def setup(program, amount=0):
    fault = PROGRAMS[program] if BAD else None
    made = 0

    def step():
        nonlocal made
        made += 1
        work(STEP_US)
        if made == STRIKES and fault in IN_A_STEP:
            fault()

    if fault is not None and fault not in IN_A_STEP:
        fault()
    return step


def teardown():
    for act in AT_TEARDOWN:
        act()


def segfault():
    ctypes.memset(16, 1, 1)


def raise_error():
    raise ValueError("planted: the shapes do not match")


def segfault_at_exit():
    """Die by SIGSEGV at exit, like a destructor of a native library that runs after its driver is gone."""
    atexit.register(segfault)


def abort_at_exit():
    """Abort at exit, as `terminate called without an active exception` does if a C++ thread was not joined."""
    atexit.register(os.abort)


def exit_code_at_exit():
    atexit.register(os._exit, 3)


def kill_at_exit():
    atexit.register(os.kill, os.getpid(), signal.SIGKILL)


def thread_that_never_ends():
    """Never end: the interpreter waits for a thread that nothing stops."""
    threading.Thread(target=time.sleep, args=(1e6,)).start()


def hang_at_exit():
    atexit.register(time.sleep, 1e6)


def fail_in_teardown():
    AT_TEARDOWN.append(raise_error)


IN_A_STEP = (segfault, raise_error)
PROGRAMS = {
    "segv_in_step": segfault,
    "raises_in_step": raise_error,
    "segv_at_exit": segfault_at_exit,
    "abort_at_exit": abort_at_exit,
    "exit_3_at_exit": exit_code_at_exit,
    "killed_at_exit": kill_at_exit,
    "thread_at_exit": thread_that_never_ends,
    "hang_at_exit": hang_at_exit,
    "teardown_raises": fail_in_teardown,
}
