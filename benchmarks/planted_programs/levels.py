"""Programs with a figure that is worse in a bad version. `amount` is a share, or seconds of a single event."""

import atexit
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

from planted_carrier import planted, spin, work

CHANCE = random.SystemRandom()  # new in every launch
BASE_SETUP_S, BASE_FIRST_S = 0.2, 0.05
BASE_PEAK = 64 << 20
ITEMS = 1000


def setup(program, amount=0.0):
    return PROGRAMS[program](planted(amount))


# ---------------------------------------------------------------- step time


def busy(us):
    return lambda more: lambda: work(us * (1 + more))


def two_modes(more):
    """Two of five launches are slower, from the first step to the last."""
    slow = CHANCE.randrange(5) < 2
    return lambda: time.sleep(0.001 * (1 + more * slow))


def sleeping(more):
    return lambda: time.sleep(0.002 * (1 + more))


def late(more):
    """Steps are slower after the first 3,000."""
    made = 0

    def step():
        nonlocal made
        made += 1
        work(200 * (1 + more * (made > 3000)))

    return step


def gradual_late(more):
    """Steps become gradually slower within the last quarter, on average by `amount`."""
    made = 0

    def step():
        nonlocal made
        made += 1
        work(200 * (1 + 2 * more * max(0, made - 3000) / 1000))

    return step


def tail(us, share, factor, longer):
    """One step in `1/share` takes `factor` times as long, in a bad version `longer(amount)` times that."""

    def program(more):
        def step():
            work(us * factor * longer(more) if CHANCE.random() < share else us)

        return step

    return program


def stalls(more):
    """Every two-hundredth step waits, like a checkpoint: neither the median nor the 99th percentile shows it."""
    made = 0

    def step():
        nonlocal made
        made += 1
        work(200)
        if more and made % 200 == 0:
            time.sleep(200 * more * 200e-6)

    return step


# ---------------------------------------------------------------- CPU time: a step lasts as long as before


def until(deadline):
    time.sleep(max(0.0, deadline - time.perf_counter()))


def spinning_wait(more):
    """1 ms of work in a step of 4 ms; a bad version spends part of the rest in a busy loop."""

    def step():
        deadline = time.perf_counter() + 0.004
        spin(0.001 * (1 + more))
        until(deadline)

    return step


def busy_thread(more):
    """A second thread, which hashes without the interpreter's lock."""
    wake = threading.Semaphore(0)
    block = b"x" * (32 << 10)

    def hash_beside():
        while wake.acquire():
            end = time.thread_time() + 0.001 * more
            while time.thread_time() < end:
                hashlib.sha256(block)

    if more:
        threading.Thread(target=hash_beside, daemon=True).start()

    def step():
        deadline = time.perf_counter() + 0.004
        spin(0.001)
        wake.release()
        until(deadline)

    return step


SPINNER = """
import sys, time
while sys.stdin.read(1):
    end = time.thread_time() + {seconds}
    while time.thread_time() < end:
        pass
"""


def busy_process(more):
    """A second process, which ends at the end of its input."""
    told = None
    if more:
        child = subprocess.Popen([sys.executable, "-c", SPINNER.format(seconds=0.001 * more)], stdin=subprocess.PIPE)
        told = child.stdin.fileno()

    def step():
        deadline = time.perf_counter() + 0.004
        spin(0.001)
        if told is not None:
            os.write(told, b"x")
        until(deadline)

    return step


# ---------------------------------------------------------------- throughput, start-up


def fewer_items(less):
    """Steps take the same time, but have fewer items."""

    def step():
        work(300)
        return round(ITEMS * (1 - less))

    return step


def setup_sleeps(more_s):
    time.sleep(BASE_SETUP_S + more_s)
    return lambda: work(300)


def setup_works(more_s):
    spin(BASE_SETUP_S + more_s)
    return lambda: work(300)


def import_sleeps(more_s):
    """A module of the package takes longer to import."""
    os.environ["PLANTED_IMPORT_S"] = str(BASE_SETUP_S + more_s)
    import planted_carrier.slow  # noqa: F401, PLC0415

    return lambda: work(300)


def first_step(wait):
    """The first step compiles, or waits for it."""

    def program(more_s):
        waits = [BASE_FIRST_S + more_s]

        def step():
            if waits:
                wait(waits.pop())
            work(300)

        return step

    return program


def tunes(more_s):
    """The fifty steps after the first try what is fastest, and take longer."""
    waits = [more_s / 50] * 50 + [0.0]

    def step():
        if waits:
            time.sleep(waits.pop())
        work(300)

    return step


def end_sleeps(more_s):
    """What a library has registered for the end of the process takes longer."""
    atexit.register(time.sleep, BASE_FIRST_S + more_s)
    return lambda: work(300)


# ---------------------------------------------------------------- peak memory, output, bytes


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def touched(count):
    block = bytearray(count)
    block[::4096] = b"x" * len(block[::4096])
    return block


def temporary_block(more):
    """One step allocates a block and gives it back immediately."""
    held, made = touched(BASE_PEAK), 0
    extra = int(resident_bytes() * more)

    def step():
        nonlocal made
        made += 1
        work(300)
        if made == 50:
            touched(extra)
        return held  # which is dropped: no number

    return step


def larger_block(more):
    """A block is allocated at the start and kept."""
    held = [touched(BASE_PEAK)]
    held.append(touched(int(resident_bytes() * more)))

    def step():
        work(300)
        return held  # which is dropped: no number

    return step


def lines(number, more):
    """Each step writes 200 bytes to stdout or stderr; a bad version writes more."""
    text = b"i" * (round(200 * (1 + more)) - 1) + b"\n"

    def step():
        work(300)
        os.write(number, text)

    return step


def moved(is_read):
    """Each step writes 64 KiB to a file, or reads as much of it; a bad version moves more."""

    def prepare(more):
        file = tempfile.TemporaryFile(buffering=0)
        block = b"x" * int((64 << 10) * (1 + more))
        file.write(block)

        def step():
            work(300)
            file.seek(0)
            (file.read if is_read else file.write)(len(block) if is_read else block)

        return step

    return prepare


PROGRAMS = {
    "busy_10us": busy(10),
    "busy_100us": busy(100),
    "busy_5ms": busy(5000),
    "busy_40ms": busy(40000),
    "sleeping_2ms": sleeping,
    "two_modes": two_modes,
    "late": late,
    "late_gradual": gradual_late,
    "stalls": stalls,
    "tail_new": tail(500, 0.02, 1, lambda more: 1 + more),
    "tail_longer": tail(500, 0.02, 3, lambda more: 1 + more),
    "tail_50_times": tail(500, 0.02, 1, lambda more: 50 if more else 1),
    "cpu_spinning": spinning_wait,
    "cpu_thread": busy_thread,
    "cpu_process": busy_process,
    "fewer_items": fewer_items,
    "tunes": tunes,
    "end_sleeps": end_sleeps,
    "start_sleeps": lambda _: lambda: work(300),
    "setup_sleeps": setup_sleeps,
    "setup_works": setup_works,
    "import_sleeps": import_sleeps,
    "first_step_works": first_step(spin),
    "first_step_sleeps": first_step(time.sleep),
    "peak_temporary": temporary_block,
    "peak_kept": larger_block,
    "output_stderr": lambda more: lines(2, more),
    "output_stdout": lambda more: lines(1, more),
    "file_read": moved(is_read=True),
    "file_written": moved(is_read=False),
}
