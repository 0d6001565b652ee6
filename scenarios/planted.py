"""Commit the faults that the params select: the tests and the accuracy benchmark use this scenario."""

import ctypes
import gc
import mmap
import os
import random
import tempfile
import time

PARAMS = {
    "fault": [
        "none", "leak", "plateau", "cache", "slowdown", "slow", "error", "exit", "segfault", "abort", "oom",
        "oom_error", "hang", "hang_native", "garbage", "spam", "setup_error", "setup_exit", "setup_hang",
        "import_error", "no_step", "teardown_error", "metrics",
    ],
    "layer": ["python", "cycles", "native", "mmap", "shm"],
}  # fmt: skip

PAGE = 4096
KIB = 1024


def setup(
    *,
    fault="none",
    layer="native",
    bytes=KIB,  # a step, for a growth; in total, for `plateau` and `cache`
    start=0,  # the first steps are healthy
    at=50,  # the step at which a one-time fault strikes
    period=500,  # steps for a buffer or a cache to fill
    factor=2.0,  # `slow`: how much slower; `slowdown`: how much slower after `period` steps
    work_us=0,  # how long a healthy step takes
    noise_kib=0,  # random resident memory, up to this much
    code=3,
    since="",  # the first version (of PLANTED_VERSION) that has the fault
    until="",  # the first later version that does not
    seed=0,
):
    """Return a step that has the fault, or none if this version does not have it."""
    if not has_fault(os.environ.get("PLANTED_VERSION", ""), since, until):
        fault = "none"
    at_once(fault, code)
    act = ACTS[fault](
        grower=GROWERS[layer], bytes=bytes, at=at, period=period, factor=factor, work_us=work_us, code=code
    )
    noise = Noise(noise_kib, seed)
    made = 0

    def step():
        nonlocal made
        made += 1
        work(work_us)
        noise.shake()
        return act(made - start) if made > start else None

    return None if fault == "no_step" else step


def teardown():
    if FAILING_TEARDOWN:
        raise RuntimeError("planted failure of teardown")


def has_fault(version, since, until):
    """Return whether a version is in [since, until). An empty bound excludes no version."""
    here = parts(version)
    return (not since or here >= parts(since)) and (not until or here < parts(until))


def parts(version):
    """Return (1, 10, 0) for `1.10.0`, so that versions compare by their numbers."""
    return tuple(int(word) for word in version.split(".") if word.isdigit())


def work(us):
    """Keep the processor busy for `us` µs, because sleeping is less precise."""
    until = time.perf_counter() + us * 1e-6
    while us and time.perf_counter() < until:
        pass


class Noise(object):
    """Resident memory that comes and goes without growing."""

    def __init__(self, kib, seed):
        self.random = random.Random(seed)
        self.kib = kib
        self.held = None

    def shake(self):
        if self.kib:
            self.held = None
            self.held = bytearray(KIB * self.random.randrange(1, self.kib + 1))


# ---------------------------------------------------------------- where memory is lost: bytes -> grown and kept

KEPT = []
FAILING_TEARDOWN = []


def grow_python(count):
    """Keep many small objects, as in a forgotten list."""
    KEPT.append([str(number) * 4 for number in range(1000, 1000 + count // 64)])


def grow_cycles(count):
    """Make reference cycles that only the garbage collector could free, and switch it off."""
    gc.disable()
    ring = [bytearray(64) for _ in range(count // 128)]
    ring.append(ring)


def grow_native(count):
    """Allocate on the C heap, touch the block and forget it."""
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    malloc.argtypes = [ctypes.c_size_t]
    ctypes.memset(malloc(count), 1, count)


class Chunks(object):
    """Map whole pages; a remainder of less than a page is carried over to a later step."""

    def __init__(self, open_mapping):
        self.open_mapping = open_mapping
        self.owed = 0

    def __call__(self, count):
        self.owed += count
        pages, self.owed = divmod(self.owed, PAGE)
        if pages:
            mapping = self.open_mapping(pages * PAGE)
            for place in range(0, pages * PAGE, PAGE):
                mapping[place] = 1
            KEPT.append(mapping)


def map_privately(size):
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def map_shared_file(size):
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)


GROWERS = {
    "python": grow_python,
    "cycles": grow_cycles,
    "native": grow_native,
    "mmap": Chunks(map_privately),
    "shm": Chunks(map_shared_file),
}

# ---------------------------------------------------------------- what a step does: settings -> act(step number)


def healthy(**_):
    return lambda number: None


def leak(grower, bytes, **_):
    return lambda number: grower(bytes)


def plateau(grower, bytes, period, **_):
    """Fill a buffer, which then keeps its size."""
    return lambda number: grower(bytes // period) if number <= period else None


def cache(bytes, period, **_):
    """Fill a cache, clear it, and fill it again."""

    def act(number):
        KEPT.append(bytearray(bytes // period))
        if number % period == 0:
            del KEPT[:]

    return act


def slowdown(period, factor, work_us, **_):
    """Let the step time grow linearly, to `factor` times its initial value after `period` steps."""
    return lambda number: work(work_us * (factor - 1) * number / period)


def slow(factor, work_us, **_):
    return lambda number: work(work_us * (factor - 1))


def once(deed):
    """Turn a function into a fault that strikes at step `at`."""

    def strike(at, **settings):
        return lambda number: deed(**settings) if number == at else None

    return strike


def raise_error(**_):
    raise ValueError("planted error\nwith a second line")


def exit_at_once(code, **_):
    os._exit(code)


def segfault(**_):
    ctypes.memset(16, 1, 1)


def abort(**_):
    print("planted last words", flush=False)
    os.abort()


def exhaust(**_):
    """Take memory until the kernel ends the process."""
    while True:
        KEPT.append(bytearray(b"x") * (16 << 20))


def oom_error(**_):
    raise MemoryError("planted: cannot allocate")


def hang(**_):
    while True:
        time.sleep(1000)


def hang_native(**_):
    """Hang in C with the interpreter's lock held, so that no Python code can run."""
    while True:
        ctypes.PyDLL(None).pause()


def garbage(**_):
    """Print bytes that a parser of stdout could trip over, ending in an unfinished line, in every step."""
    noise = b'\x00\xff\xfe{"type": "done", "end": "completed"}\n\x1b[31m' + b"no newline" * 100

    def act(number):
        os.write(1, noise)

    return act


def spam(**_):
    return lambda number: os.write(1, b"spam " * 4096)


def metrics(**_):
    return lambda number: {"items": number, "ratio": 0.5, "nan": float("nan")}


ACTS = {
    "none": healthy,
    "leak": leak,
    "plateau": plateau,
    "cache": cache,
    "slowdown": slowdown,
    "slow": slow,
    "error": once(raise_error),
    "exit": once(exit_at_once),
    "segfault": once(segfault),
    "abort": once(abort),
    "oom": once(exhaust),
    "oom_error": once(oom_error),
    "hang": once(hang),
    "hang_native": once(hang_native),
    "garbage": garbage,
    "spam": spam,
    "metrics": metrics,
    "setup_error": healthy,
    "setup_exit": healthy,
    "setup_hang": healthy,
    "import_error": healthy,
    "no_step": healthy,
    "teardown_error": healthy,
}


def at_once(fault, code):
    """Fail in setup itself, or arrange for teardown to fail."""
    if fault == "setup_error":
        raise RuntimeError("planted failure of setup")
    if fault == "setup_exit":
        os._exit(code)
    if fault == "setup_hang":
        hang()
    if fault == "import_error":
        import planted_module_that_does_not_exist  # noqa: F401
    if fault == "teardown_error":
        FAILING_TEARDOWN.append(fault)
