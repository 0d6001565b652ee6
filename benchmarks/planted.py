"""What a sweep sees: faults of known size planted in two of four versions of a package, and healthy look-alikes.

    python -m benchmarks.planted                        all planted programs, at 1, 1.5 and 3 times the limit
    python -m benchmarks.planted --signals zombies,disk --sizes 3
    python -m benchmarks.planted --healthy              programs that look guilty but are not
    python -m benchmarks.planted --healthy --resampled 50    and 50 more sweeps of each, resampled from its launches
    python -m benchmarks.planted --gpus SITE-PACKAGES   programs on a real GPU, with the PyTorch in that folder
    python -m benchmarks.planted --quiet 3 --resampled 500

Every row is a real sweep on the process engine, started from the command line, whose summary.json is read. Versions 1.0
to 1.3 of a carrier package are built here; 1.2 and 1.3 have the fault. `named`: a finding of the right signal between
1.1 and 1.2; `seen`: some other finding, or a bad cell; `unsure`: a bad version was not called good (suspect,
inconclusive, untested, blind); `missed`: it was called good. All files are in a temporary folder, which is removed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import planted_quiet
from benchmarks.planted_answers import HEALTHY_ANSWERS, PLANTED_ANSWERS, accused, answer
from benchmarks.planted_programs.catalogue import HEALTHY, ON_GPU, PLANTED, SIZES, Planted
from benchmarks.planted_resampled import Pool, gather, made_sweeps, plan_of
from benchmarks.planted_sweeps import VERSIONS, Refused, Swept, Workshop, matrix_of, scenario_name
from harness.judge.history.transitions import exact_interval

__all__ = ["main"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One scenario of one sweep.

    `size`: multiples of the limit, or None for a program with only one size. `made`: what each resampled sweep found.
    """

    signal: str
    program: str
    size: float | None
    answer: str
    said: str
    made: tuple[str, ...] = ()


def main() -> int:
    options = arguments()
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="planted-"))
    try:
        workshop = Workshop(folder=folder)
        workshop.build()
        rows = []
        for found in run_all(workshop, chosen(options), options):
            rows += found
        quiet = planted_quiet.run(workshop, sweeps=options.quiet, resampled=options.resampled, note=note)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(rows), *([quiet] if quiet else []), sep="\n\n")
    print(f"\n{len(rows)} rows, {time.monotonic() - begun:.0f} s")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", default="", help="only these signals or programs, separated by commas")
    parser.add_argument("--sizes", default=",".join(f"{size:g}" for size in SIZES), help="multiples of the limit")
    parser.add_argument("--healthy", action="store_true", help="the healthy programs instead of the planted ones")
    parser.add_argument("--all", action="store_true", help="both")
    parser.add_argument("--gpus", type=Path, metavar="FOLDER", help="the programs on a GPU, with PyTorch from here")
    parser.add_argument("--quiet", type=int, default=0, metavar="N", help="also make N quiet sweeps of 8 versions")
    parser.add_argument(
        "--resampled",
        type=int,
        default=0,
        metavar="N",
        help="so many made of their launches, and of those of each healthy program, as well",
    )
    parser.add_argument("--repeats", type=int, default=1, help="sweeps of each program")
    parser.add_argument("--jobs", type=int, default=1, help="programs without timing that are swept at the same time")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep runs with findings other than the right one")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    options.sizes = tuple(float(size) for size in options.sizes.split(","))
    return options


def chosen(options: argparse.Namespace) -> list[Planted]:
    asked = set(filter(None, options.signals.split(",")))
    only_quiet = options.quiet and not (asked or options.healthy or options.all)
    pool = [*(HEALTHY if options.healthy or options.all else ()), *(() if options.healthy or only_quiet else PLANTED)]
    pool = list(ON_GPU) if options.gpus else pool
    unknown = asked - {word for program in pool for word in (program.signal, program.name)}
    if unknown:
        sys.exit(f"--signals: no signal or program is called {', '.join(sorted(unknown))}")
    return [program for program in pool if not asked or asked & {program.signal, program.name}]


def run_all(workshop: Workshop, programs: Sequence[Planted], options: argparse.Namespace) -> Iterator[list[Row]]:
    """Yield the rows of each sweep: programs without timing run side by side, the others one after the other."""
    tasks = [program for program in programs for _ in range(options.repeats)]
    untimed = [program for program in tasks if not program.timed]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        yield from pool.map(lambda program: run(workshop, program, options), untimed)
    for program in tasks:
        if program.timed:
            yield run(workshop, program, options)


def run(workshop: Workshop, program: Planted, options: argparse.Namespace) -> list[Row]:
    """Sweep one program in all requested sizes, and return its rows."""
    wanted = [size for size in program.sizes() if size is None or size in options.sizes]
    kind = "healthy" if program.signal == "none" else "planted"
    begun = time.monotonic()
    try:
        swept = workshop.sweep(matrix_of(program, wanted, workshop.series(kind, VERSIONS), options.gpus))
    except Refused as error:
        note(f"{program.name}: skipped: {error}")
        return [_row(program, size, "skipped", f"skipped: {str(error).split(';')[0]}") for size in wanted]
    judge = accused if kind == "healthy" else answer
    made = made_of(swept, options.resampled) if kind == "healthy" else ()
    rows = [_row(program, size, *judge(program, scenario_name(program, size), swept), made) for size in wanted]
    if options.keep is not None and any(_surprises(row) for row in rows):
        shutil.copytree(swept.directory, options.keep / f"{program.name}-{swept.directory.name}")
    shutil.rmtree(swept.directory.parents[2], ignore_errors=True)
    for row in rows:
        note(f"{program.name} {_size(row.size)}: {row.answer} {row.said}".rstrip())
    note(f"{program.name}: {time.monotonic() - begun:.0f} s")
    return rows


def _surprises(row: Row) -> bool:
    return row.answer not in ("named", "good") or "; " in row.said.split("blind")[0]


def _row(program: Planted, size: float | None, found: str, said: str, made: tuple[str, ...] = ()) -> Row:
    return Row(signal=program.signal, program=program.name, size=size, answer=found, said=said, made=made)


def made_of(swept: Swept, count: int) -> tuple[str, ...]:
    """Return what each of `count` sweeps finds that are resampled from the launches of one; "" for nothing."""
    plan, pools = plan_of(swept), dict[str, Pool]()
    gather(swept, plan, pools)
    return tuple(made_sweeps(plan, pools, count, note))


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- the table


def table(rows: Sequence[Row]) -> str:
    """Return the table: for each program and size, the number of sweeps by answer; then totals with 95 % intervals
    (Clopper and Pearson).
    """
    return "\n".join([*(_table(rows, PLANTED_ANSWERS)), *(_table(rows, HEALTHY_ANSWERS)), *totals(rows)])


def _table(rows: Sequence[Row], answers: Sequence[str]) -> list[str]:
    """Return the lines of the planted or of the healthy programs, depending on `answers`."""
    grouped: dict[tuple[str, str, float | None], list[Row]] = {}
    for row in rows:
        if (row.signal == "none") == (answers is HEALTHY_ANSWERS):
            grouped.setdefault((row.signal, row.program, row.size), []).append(row)
    if not grouped:
        return []
    lines = [f"{'signal':18}{'program':24}{'size':>5}" + "".join(f"{word:>9}" for word in answers) + "  said"]
    for (name, program, size), group in grouped.items():
        counts = Counter(row.answer for row in group)
        said = " | ".join(dict.fromkeys(row.said for row in group if row.said))
        cells = "".join(f"{counts[word] or '':>9}" for word in answers)
        lines.append(f"{name:18}{program:24}{_size(size):>5}{cells}  {said}".rstrip())
    return [*lines, ""]


def totals(rows: Sequence[Row]) -> list[str]:
    """Return the shares of planted faults by answer and size, and the shares of healthy programs by answer."""
    planted = [row for row in rows if row.signal != "none" and row.answer != "skipped"]
    healthy = [row for row in rows if row.signal == "none" and row.answer != "skipped"]
    lines = []
    for size in dict.fromkeys(row.size for row in planted):
        of_size = [row for row in planted if row.size == size]
        counts = Counter(row.answer for row in of_size)
        lines += [_share(f"size {_size(size)} {word}", counts[word], len(of_size)) for word in PLANTED_ANSWERS]
    if healthy:
        counts = Counter(row.answer for row in healthy)
        lines += [_share(f"healthy {word}", counts[word], len(healthy)) for word in HEALTHY_ANSWERS]
        made = [found for row in healthy for found in row.made]
        lines += [planted_quiet.share("healthy, resampled", made)] if made else []
    skipped = sum(row.answer == "skipped" for row in rows)
    return [*lines, *([f"{skipped} skipped: the matrix file was refused"] if skipped else [])]


def _share(name: str, count: int, of: int) -> str:
    low, high = exact_interval(count, of)
    return f"{name:24}{count:4} of {of:4}  {count / of:.3f} ({low:.3f} to {high:.3f})"


def _size(size: float | None) -> str:
    return "-" if size is None else f"{size:g}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # then the folder is removed, too
    sys.exit(main())
