"""Writes the results of probes as plain tables, with the columns of memory_profiler, line_profiler and valgrind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from harness.model import LineTable, OomReport, Probed
from harness.report.exports.probe_tables import LONGEST, NOT_WHOLE, a_step, indented, lost, not_whole
from harness.report.text.clean import plain, shortened

MOST_OPS = 20
MOST_LEAKS = 8
FRAMES = 4
KIB_A_MIB = 1024


def render(found: Sequence[Probed], directory: Path) -> str:
    """Return the tables of all probes, after a table that compares all valgrind results."""
    blocks = [*_leak_summary([each for each in found if each.leaks]), *(_block(each) for each in found)]
    text = "\n\n".join([*blocks, f"Files: {directory}"])
    return "\n".join(_clean(line) for line in text.split("\n"))


def _clean(line: str) -> str:
    """Replace characters that control a terminal, so that the columns stay aligned."""
    return "".join(letter if letter.isprintable() else "?" for letter in line.expandtabs(4))


def _block(probed: Probed) -> str:
    head = plain(f"{probed.probe.name}: {probed.place}")
    parts = [head, *([f"  {plain(probed.problem)}"] if probed.problem else []), *TABLES[probed.probe.name](probed)]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> list[str]:
    """Return the table as lines; the first `left` columns are left-aligned, the others right-aligned.

    Each cell is cleaned and cut to LONGEST, because its text comes from the image.
    """
    every = [[shortened(text, most=LONGEST) for text in row] for row in (head, *rows)]
    widths = [max(len(row[place]) for row in every) for place in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = (
            text.ljust(width) if place < left else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  " + "  ".join(cells).rstrip()

    return [line(row) for row in every]


# ---------------------------------------------------------------- op trace


def _ops(probed: Probed) -> Iterator[str]:
    if not probed.ops:
        return
    at = next(value for name, value in probed.probe.settings if name == "at")
    order = "worst drift first" if len(at) > 1 else "longest first"
    yield f"  milliseconds an operation, {order}; {len(probed.ops)} operations"
    rows = [
        [row.op, row.kind, *(_ms(value) for value in row.ms), "" if row.ratio is None else f"{row.ratio:.2f}x"]
        for row in probed.ops[:MOST_OPS]
    ]
    yield from _table(["op", "kind", *(f"step {step}" for step in at), "ratio"], rows, left=2)
    yield from _sizes(probed)


def _sizes(probed: Probed) -> Iterator[str]:
    """Yield the largest outputs, beside the sizes that the scenario's own arithmetic expects."""
    largest = sorted(probed.ops, key=lambda row: -row.bytes)[:MOST_OPS]
    if not largest or not largest[0].bytes:
        return
    yield "  largest outputs, MiB"
    rows = [
        [row.op, _mib(row.bytes), "" if row.expected_bytes is None else _mib(row.expected_bytes)]
        for row in largest
        if row.bytes
    ]
    yield from _table(["op", "seen", "by arithmetic"], rows)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.2f}"


# ---------------------------------------------------------------- lines


def _functions(probed: Probed) -> Iterator[str]:
    for table in probed.functions:
        yield from _memory(table)
        yield from _times(table)


def _memory(table: LineTable) -> Iterator[str]:
    """Yield the lines in the format of memory_profiler."""
    yield f"  Filename: {plain(Path(table.file).name)}, function {plain(table.name)}, memory"
    yield "  Line #    Mem usage    Increment  Occurrences   Line Contents"
    yield "  " + "=" * 61
    for row in table.rows:
        figures = (
            f"{row.mem_kib / KIB_A_MIB:8.3f} MiB {row.increment_kib / KIB_A_MIB:8.3f} MiB {row.occurrences:12d}"
            if row.mem_kib is not None
            else " " * 38
        )
        yield f"  {row.line:6d} {figures}   {indented(row.text)}".rstrip()


def _times(table: LineTable) -> Iterator[str]:
    """Yield the lines in the format of line_profiler, in microseconds."""
    total_s = sum(row.time_s for row in table.rows)
    yield f"  Total time: {total_s:.6f} s, function {plain(table.name)}, time in microseconds"
    yield "  Line #      Hits         Time  Per Hit   % Time  Line Contents"
    yield "  " + "=" * 62
    for row in table.rows:
        share = 100 * row.time_s / total_s if total_s else 0.0
        figures = (
            f"{row.hits:9d} {row.time_s * 1e6:12.1f} {row.time_s * 1e6 / row.hits:8.1f} {share:8.1f}"
            if row.hits
            else " " * 40
        )
        yield f"  {row.line:6d} {figures}  {indented(row.text)}".rstrip()


# ---------------------------------------------------------------- valgrind


def _leak_summary(found: Sequence[Probed]) -> list[str]:
    """Return a table of the blocks definitely lost a step: a row for each variant, a column for each version."""
    if not found:
        return []
    versions = list(dict.fromkeys(f"{each.image.series} {each.image.version}" for each in found))
    rows = []
    for variant in dict.fromkeys(str(each.variant) for each in found):
        cells = {f"{x.image.series} {x.image.version}": x for x in found if str(x.variant) == variant}
        rows.append([variant, *(lost(cells[name]) if name in cells else "-" for name in versions)])
    head = "valgrind: blocks definitely lost a step (in brackets: the total in valgrind's own summary)"
    foot = [f"  {NOT_WHOLE}"] if not_whole(found) else []
    return ["\n".join([head, *_table(["variant", *versions], rows), *foot])]


def _leaks(probed: Probed) -> Iterator[str]:
    if not probed.leaks:
        return
    kinds = list(dict.fromkeys(leak.kind for leak in probed.leaks))
    rows = []
    for kind in sorted(kinds):
        size, blocks, added = probed.lost(kind)
        rows.append([kind, str(size), str(blocks), a_step(added)])
    yield from _table(["kind", "bytes", "blocks", "blocks a step"], rows)
    if probed.errors:
        yield "  other errors: " + ", ".join(f"{plain(kind)} {count}" for kind, count in sorted(probed.errors.items()))
    for leak in [leak for leak in probed.leaks if leak.blocks_a_step > 0][:MOST_LEAKS]:
        each_step = f"{a_step(leak.blocks_a_step)} blocks, {a_step(leak.bytes_a_step)} bytes a step"
        yield f"  {each_step}, {plain(leak.kind)}, from"
        yield from (f"      {shortened(frame, most=LONGEST)}" for frame in _telling(leak.stack))


def _telling(stack: Sequence[str]) -> Sequence[str]:
    """Return the first frames with a name, which identify the owner of the block; if none has one, the first frames."""
    named = [frame for frame in stack if not frame.startswith("???")]
    return (named or stack)[:FRAMES]


# ---------------------------------------------------------------- largest, artifacts


def _tries(probed: Probed) -> Iterator[str]:
    if not probed.tries:
        return
    param = dict(probed.probe.settings)["param"]
    rows = [
        [str(each.size), "fits" if each.fits else each.end, _peak(each.peak_rss_kib), each.message]
        for each in probed.tries
    ]
    yield from _table([param, "", "peak MiB", "why"], rows, left=2)
    for each in probed.tries:
        yield from _out_of_memory(f"{param}={each.size}", each.oom)
    yield f"  largest {param} that fits: {'none' if probed.largest is None else probed.largest}"


def _out_of_memory(size: str, oom: OomReport | None) -> Iterator[str]:
    """Yield the report of the framework or the kernel on a size that did not fit."""
    if oom is None:
        return
    wanted = f" for {_mib(oom.wanted_bytes)} MiB" if oom.wanted_bytes is not None else ""
    place = f" on {plain(oom.device)}" if oom.device else ""
    yield f"  {size}: {oom.source} was asked{wanted}{place}; held by"
    yield from (f"      {_mib(each.bytes):>10} MiB  {shortened(each.op, most=LONGEST)}" for each in oom.holders)
    if oom.remaining_nodes is not None and oom.remaining_bytes is not None:
        yield f"      {_mib(oom.remaining_bytes):>10} MiB  {oom.remaining_nodes} others"


def _peak(kib: float | None) -> str:
    return "-" if kib is None else f"{kib / KIB_A_MIB:.0f}"


def _files(probed: Probed) -> Iterator[str]:
    yield from (f"  {plain(name)}" for name in sorted(probed.files))


TABLES = {"optrace": _ops, "lines": _functions, "valgrind": _leaks, "largest": _tries, "artifacts": _files}
