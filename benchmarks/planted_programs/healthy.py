"""Programs that look guilty, but have no fault in any version: any finding is a false accusation."""

import array
import atexit
import collections
import gc
import hashlib
import logging.handlers
import math
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from planted_carrier import VERSION, counted, own_path, spin, work

CHANCE = random.SystemRandom()  # new in every launch
STEP_US = 200
MIB = 1 << 20
KEPT = []
AT_TEARDOWN = []


def setup(program, amount=0.0):
    return PROGRAMS[program]()


def teardown():
    for act in AT_TEARDOWN:
        act()


def plain():
    return counted(lambda made: None)


# ---------------------------------------------------------------- files, threads, processes


def file_cache(size, every):
    """A cache of open files, which opens another file at times; once it is full, it closes the oldest."""

    def program():
        opened = collections.deque()

        def act(made):
            if made % every == 0:
                opened.append(open(__file__))
                if len(opened) > size:
                    opened.popleft().close()

        return counted(act)

    return program


def thread_pool():
    """A pool that grows with the number of concurrent requests, to 16 threads."""
    pool = ThreadPoolExecutor(16)
    return counted(lambda made: list(pool.map(time.sleep, [0.0001] * min(16, 1 + made // 25))) and None)


def worker_pool():
    """Four processes, each started when there is first work for it."""

    def act(made):
        if made % 20 == 0 and len(KEPT) < 4:
            KEPT.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        for worker in KEPT:
            worker.stdin.write(b"x")
            worker.stdin.flush()

    return counted(act)


LOST_IN_WORKER = []


def lose(limit):
    """Run in a worker: keep another 64 KiB, at most `limit` pieces."""
    if len(LOST_IN_WORKER) < limit:
        LOST_IN_WORKER.append(b"x" * 65536)


def workers_replaced():
    """A pool whose workers leak, and are replaced after a hundred tasks: nothing grows for long."""
    pool = multiprocessing.Pool(2, maxtasksperchild=100)
    return counted(lambda made: pool.apply(lose, (1 << 30,)))


def workers_cache():
    """Workers whose caches are full after a few hundred tasks."""
    pool = multiprocessing.Pool(2)
    return counted(lambda made: pool.apply(lose, (200,)))


def temporary_files():
    def act(_):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x" * 65536)

    return counted(act)


def rotating_log():
    """Up to five files of 64 KiB: full after 600 steps."""
    handler = logging.handlers.RotatingFileHandler("train.log", maxBytes=65536, backupCount=4)
    log = logging.getLogger("planted")
    log.addHandler(handler)
    return counted(lambda made: log.warning("step %d %s", made, "x" * 500))


def late_reaping():
    """Child processes that end immediately and are waited for a hundred steps later: some zombies at any time."""
    children = collections.deque()

    def act(made):
        if made % 20 == 0:
            children.append((made, subprocess.Popen(["true"])))
        if children and made - children[0][0] >= 100:
            children.popleft()[1].wait()

    return counted(act)


def shm_ring():
    """A ring buffer of four MiB in /dev/shm, which is overwritten repeatedly."""
    path = own_path("/dev/shm", "ring")
    file = open(path, "w+b")
    AT_TEARDOWN.append(lambda: os.remove(path))

    def act(made):
        file.seek(made % 64 * 65536)
        file.write(b"x" * 65536)

    return counted(act)


def socket_churn():
    """Sockets that come and go, up to fifty."""
    opened = []

    def act(_):
        if CHANCE.random() < 0.1:
            if opened and CHANCE.random() < len(opened) / 50:
                opened.pop(CHANCE.randrange(len(opened))).close()
            else:
                opened.append(socket.socket())

    return counted(act)


# ---------------------------------------------------------------- memory


def cache_that_fills():
    """A cache that takes 20 MiB in the first 600 steps, and no more after that."""
    return counted(lambda made: KEPT.append(os.urandom(20 * MIB // 600)) if made <= 600 else None)


def bursty_allocator():
    """Allocations of up to 16 MiB at times, given back in the same step."""

    def act(_):
        if CHANCE.random() < 0.02:
            bytearray(b"x") * CHANCE.randrange(16 * MIB)

    return counted(act)


def uneven_peak():
    """A workspace whose size differs from launch to launch by 3 %."""
    KEPT.append(bytearray(b"x") * int(64 * MIB * CHANCE.gauss(1, 0.03)))
    return plain()


def collected_cycles():
    """Garbage in reference cycles, which the collector frees at its own times."""

    def act(_):
        ring = [bytearray(256) for _ in range(20)]
        ring.append(ring)
        if CHANCE.random() < 0.005:
            gc.collect()

    return counted(act)


# ---------------------------------------------------------------- time


def jittery_setup():
    time.sleep(CHANCE.uniform(0.1, 0.4))
    return plain()


def cold_start():
    """The first launch of a version compiles for a second; later launches find the result in a cache."""
    path = os.path.join("/tmp", "planted-%s-compiled-%s" % (os.environ["PLANTED_TOKEN"], VERSION))
    if not os.path.exists(path):
        spin(1.0)
        open(path, "w").close()
    return plain()


def long_tails():
    """One step in fifty takes twenty times as long, in all versions."""
    return counted(lambda made: work(19 * STEP_US) if CHANCE.random() < 0.02 else None)


def rare_pauses():
    """Five pauses of 50 ms at random times in a launch, like those of a garbage collector."""
    return counted(lambda made: time.sleep(0.05) if CHANCE.random() < 5 / 4000 else None)


def slow_warm_up():
    """The first thousand steps become faster, from three times the usual duration."""
    return counted(lambda made: work(2 * STEP_US * math.exp(-made / 250)) if made < 1000 else None)


def bimodal_steps():
    return counted(lambda made: work(STEP_US / 2) if CHANCE.random() < 0.5 else None)


def two_kinds_of_launches():
    """A launch gets the better or the worse placement at random: step times differ by 4 %."""
    return counted(lambda made: None, us=STEP_US * CHANCE.choice([1.0, 1.04]))


def bursts_beside():
    """A second thread that hashes for 5 ms at times."""

    def burst():
        while True:
            time.sleep(CHANCE.expovariate(20))
            for _ in range(100):
                hashlib.sha256(b"x" * (64 << 10))

    threading.Thread(target=burst, daemon=True).start()
    return plain()


def quicker_versions():
    """Each version does the same work in 5 % less time, which is not a fault."""
    return counted(lambda made: None, us=STEP_US * 0.95 ** int(VERSION.split(".")[1]))


def slow_to_exit():
    atexit.register(time.sleep, 1.0)
    return plain()


# ---------------------------------------------------------------- what is printed and returned


def output_at_start():
    """100 KiB in setup and as much in the first step."""
    sys.stderr.write("I compiling\n" * 9000)
    return counted(lambda made: sys.stderr.write("I tuning\n" * 11000) and None if made == 1 else None)


def noisy_lines():
    """Warnings with addresses, times and counts, which differ from launch to launch."""

    def act(made):
        if made % 100 == 0:
            print("W %s step %d of %#x took %f s" % (time.time(), made, id(made), CHANCE.random()))

    return counted(act)


def noisy_loss():
    return counted(lambda made: {"loss": (0.5 + 1.5 * math.exp(-made / 200)) * (1 + CHANCE.gauss(0, 0.05))})


def seeded_loss():
    """Each launch starts from different weights, and ends with a loss that differs by a few per cent."""
    level = CHANCE.gauss(1, 0.02)
    return counted(lambda made: {"loss": level * (0.5 + math.exp(-made / 200)) * (1 + CHANCE.gauss(0, 0.05))})


def last_bit():
    """The same sum in another order: versions differ in the last bit, but launches of one version do not."""
    terms = [0.1 * number for number in range(20)]
    value = sum(terms) if int(VERSION.split(".")[1]) % 2 else sum(reversed(terms))
    return counted(lambda made: {"loss": value})


def nan_everywhere():
    """A metric that is NaN in every version."""
    return counted(lambda made: {"ratio": math.nan})


def uneven_items():
    """Batches of very different sizes."""
    return counted(lambda made: CHANCE.randrange(50, 151))


def order_of_data():
    """Each version shuffles its data in its own way; the work is the same."""
    order = random.Random(VERSION)
    data = array.array("d", (order.random() for _ in range(2000)))
    return counted(lambda made: {"total": round(math.fsum(data[made % 1000 : made % 1000 + 1000]), 3)})


NAMED = (
    plain, thread_pool, worker_pool, temporary_files, rotating_log, late_reaping, shm_ring, socket_churn,
    cache_that_fills, bursty_allocator, uneven_peak, collected_cycles, jittery_setup, cold_start, workers_replaced,
    workers_cache, long_tails, rare_pauses, slow_warm_up, bimodal_steps, two_kinds_of_launches, bursts_beside,
    quicker_versions, slow_to_exit, output_at_start, noisy_lines, noisy_loss, seeded_loss, last_bit, nan_everywhere,
    uneven_items, order_of_data,
)  # fmt: skip
PROGRAMS = {
    "file_cache_64": file_cache(64, 5),
    "file_cache_400": file_cache(400, 2),
    **{program.__name__: program for program in NAMED},
}
