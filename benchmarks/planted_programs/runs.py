"""Unmodified programs: those without steps, of which each launch is one figure, and those whose lines are steps."""

import gc
import math
import mmap
import subprocess
import sys
import tempfile
import time

from planted_carrier import VERSION, planted, work

RUN_S = 3.0
GROWING_S = 5.0
EPOCHS = 400
STEP_S = 0.003


def longer_run(more):
    """Take a share more time, without using the processor."""
    time.sleep(RUN_S * (1 + more))


def slower_bar(more):
    """Draw a progress bar every 0.05 s, as tqdm does, over steps that take a share more time."""
    drawn = 0.0
    for step in range(EPOCHS + 1):
        if time.monotonic() - drawn > 0.05 or step == EPOCHS:
            drawn = time.monotonic()
            done = "#" * (20 * step // EPOCHS)
            sys.stderr.write("\r%3d%%|%-20s| %d/%d [00:01<00:01, 300it/s]" % (step / 4, done, step, EPOCHS))
        time.sleep(STEP_S * (1 + more))


def fewer_epochs(bad):
    """End after half of the epochs, without a word."""
    for epoch in range(EPOCHS // 2 if bad else EPOCHS):
        time.sleep(STEP_S)
        print("epoch %d" % epoch)


def stops_half_way(bad):
    """End well before anything is written."""
    time.sleep(RUN_S / 3)
    print("shard 1 of 1 is read")
    if bad:
        sys.exit()
    time.sleep(RUN_S / 3)
    print("wrote predictions.csv")


def other_checksum(bad):
    """Print another number whose name does not tell what is worse."""
    time.sleep(RUN_S / 3)
    print("checksum %d" % (4021 if bad else 17))


def held_files(bad):
    """Leave two files open for each of 200 items, without a line for each."""
    kept = []
    for _ in range(200):
        time.sleep(RUN_S / 400)
        kept += [open("/dev/null"), open("/dev/null")] if bad else []
    print("done")
    return kept


def left_files(bad):
    """Leave 60 temporary files of 100 KB behind, without a line for each."""
    for _ in range(60):
        time.sleep(RUN_S / 200)
        with tempfile.NamedTemporaryFile(delete=not bad) as made:
            made.write(bytes(100000))
    print("done")


def other_order(bad):
    """Print the best rows in another order, without a name for their numbers."""
    time.sleep(RUN_S / 3)
    for row in sorted(range(4), reverse=bool(bad)):
        print("row %d of the best" % row)


def ticks(seconds=GROWING_S, pause_s=0.01):
    """Yield the share of the run that has passed, in up to a hundred turns a second."""
    begun = time.monotonic()
    while (passed := (time.monotonic() - begun) / seconds) < 1:
        yield passed
        work(500)
        time.sleep(pause_s)


def taken(kib):
    """Return so much memory, touched."""
    return bytearray(b"x") * int(kib * 1024)


def leaks_over_time(kib, since=0.0):
    """Lose so much memory each second, without a line for each."""
    lost = []
    for passed in ticks():
        while 64 * (len(lost) + 1) <= kib * GROWING_S * (passed - since):
            lost.append(taken(64))


def leaks_late(kib):
    """Lose memory in the second half of the run."""
    leaks_over_time(kib, since=0.5)


def child_leaks(kib):
    """Wait for a process that loses memory."""
    subprocess.run([sys.executable, __file__, "run_leaks", str(kib)], check=True)


def loads_more(bad):
    """Load a model in the first third of the run: one of 40 MiB, or of 80 MiB."""
    pieces = []
    for passed in ticks():
        if passed < 0.33 and len(pieces) < passed * 3 * (80 if bad else 40):
            pieces.append(taken(1024))


def makes_cycles(_):
    """Make garbage in cycles, which is collected every half a second."""
    gc.disable()
    for number, _ in enumerate(ticks()):
        cycle = [taken(256)]
        cycle.append(cycle)
        if number % 40 == 39:
            gc.collect()


def keeps_over_time(_):
    """Keep what each turn computed, alike in all versions."""
    pieces = []
    for _ in ticks():
        pieces.append(taken(32))


def warms_up(_):
    """Take memory that a cache or a compiler fills, ever more slowly."""
    pieces = []
    for passed in ticks():
        while 64 * len(pieces) < 60 * 1024 * (1 - math.exp(-5 * passed)):
            pieces.append(taken(64))


def maps_files(_):
    """Read more and more of a mapped file."""
    with tempfile.TemporaryFile() as file:
        file.truncate(96 << 20)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            for passed in ticks():
                sum(mapped[: int(passed * len(mapped)) : 4096])


def fills_pool(_):
    """Fill a pool of 40 MiB, which is full after 70 % of the run."""
    pieces = []
    for passed in ticks():
        if passed < 0.7 and len(pieces) < 57 * passed:
            pieces.append(taken(1024))


def keeps_results(_):
    """Keep what each epoch computed, alike in all versions."""
    results = []
    for epoch in range(EPOCHS):
        work(2000)
        results.append(bytearray(8 << 10))
        print("epoch %d: loss=%.4f" % (epoch, 1 / (epoch + 1)))


def other_lines(_):
    """Print every tenth epoch only, from a version on."""
    for epoch in range(EPOCHS):
        work(2000)
        if VERSION < "1.2" or epoch % 10 == 0:
            print("epoch %d" % epoch)


PROGRAMS = {
    "run_sleeps": longer_run,
    "bar_sleeps": slower_bar,
    "fewer_epochs": fewer_epochs,
    "stops_half_way": stops_half_way,
    "checksum_printed": other_checksum,
    "files_held": held_files,
    "files_left": left_files,
    "order_printed": other_order,
    "keeps_results": keeps_results,
    "other_lines": other_lines,
    "run_leaks": leaks_over_time,
    "run_leaks_late": leaks_late,
    "run_child_leaks": child_leaks,
    "run_loads": loads_more,
    "run_cycles": makes_cycles,
    "run_keeps": keeps_over_time,
    "run_warms_up": warms_up,
    "run_maps_files": maps_files,
    "run_fills_pool": fills_pool,
}

if __name__ == "__main__":
    kept = PROGRAMS[sys.argv[1]](planted(float(sys.argv[2])))
