"""Unmodified programs: those without steps, of which each launch is one figure, and those whose lines are steps."""

import sys
import tempfile
import time

from planted_carrier import VERSION, planted, work

RUN_S = 3.0
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
    "checksum_printed": other_checksum,
    "files_held": held_files,
    "files_left": left_files,
    "order_printed": other_order,
    "keeps_results": keeps_results,
    "other_lines": other_lines,
}

if __name__ == "__main__":
    kept = PROGRAMS[sys.argv[1]](planted(float(sys.argv[2])))
