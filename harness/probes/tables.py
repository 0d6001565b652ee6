"""Converts the results of probes to tables of text, for the page, Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Literal

from harness import amounts
from harness.probes.records import Probed
from harness.report.blocks import ReportSection, TextTable
from harness.report.text.harmless_text import plain, shortened, version

MOST_ROWS = 20
"""Most operations or stacks in a table; `probes.json` has all."""
MOST_LINES = 200
LONGEST = 160
BETWEEN_FRAMES = " ← "
NOT_WHOLE = "*: possibly incomplete, for the reason in the probe's section"
_MIB_BYTES = 1 << 20
_MOST_OPEN = 4
_table = partial(TextTable, has_figures=True, style="evidence probe")


def sections(found: Sequence[Probed]) -> Iterator[ReportSection]:
    """Yield a comparison of all valgrind results, then each probe of each cell, in the given order."""
    beside = _lost_by_version([probed for probed in found if probed.leaks])
    if beside is not None:
        yield ReportSection(title="valgrind: all variants and versions", name="probe", fold="open", blocks=(beside,))
    for number, probed in enumerate(found):
        yield section(probed, fold="open" if number < _MOST_OPEN else "shut")


def section(probed: Probed, *, fold: Literal["open", "shut"] = "open") -> ReportSection:
    """Return the results of one probe of one cell, after the reason why they are missing."""
    files = ", ".join(plain(name) for name in sorted(probed.files))
    return ReportSection(
        title=plain(f"{probed.probe.name}: {probed.cell}"),
        name="probe",
        fold=fold,
        blocks=(
            *([shortened(probed.problem, most=400)] if probed.problem else []),
            *(table for make in _TABLES for table in make(probed) if table.rows),
            *([f"files: {files}"] if files else []),
        ),
    )


def _text(value: str) -> str:
    return shortened(value, most=LONGEST)


def _a_step(count: float) -> str:
    """Return what a step adds, as text. A negative amount, of a block that changed its kind, counts as 0."""
    return f"{round(max(count, 0.0), 3):,.12g}"


# ---------------------------------------------------------------- op trace


def _ops(probed: Probed) -> Iterator[TextTable]:
    steps = dict(probed.probe.settings).get("at") or ()
    width = max((len(row.ms) for row in probed.ops), default=0)
    heads = (
        [f"step {step}, ms" for step in steps] if len(steps) == width else [f"time {n + 1}, ms" for n in range(width)]
    )
    if probed.ops:
        rest = f"; {MOST_ROWS} of {len(probed.ops)}" if len(probed.ops) > MOST_ROWS else ""
        order = "worst drift first" if width > 1 else "longest first"
        yield _table(
            title=f"time of each operation within a step, {order}{rest}",
            columns=("operation", "kind", *heads, "late over early"),
            rows=tuple(
                (
                    _text(row.op),
                    _text(row.kind),
                    *("" if value is None else f"{value:.3f}" for value in row.ms),
                    "" if row.ratio is None else f"{amounts.number(row.ratio)}×",
                )
                for row in probed.ops[:MOST_ROWS]
            ),
            names=2,
        )
    largest = [row for row in sorted(probed.ops, key=lambda row: -row.bytes) if row.bytes][:MOST_ROWS]
    if largest:
        yield _table(
            title="largest outputs",
            columns=("operation", "measured, MiB", "expected, MiB"),
            rows=tuple(
                (_text(row.op), _mib(row.bytes), "" if row.expected_bytes is None else _mib(row.expected_bytes))
                for row in largest
            ),
        )


def _mib(count: int) -> str:
    return f"{count / _MIB_BYTES:,.2f}"


# ---------------------------------------------------------------- lines


_LINE_COLUMNS = (
    "line", "memory, MiB", "increment, MiB", "occurrences", "hits", "time, ms", "per hit, µs", "% of the time", "code",
)  # fmt: skip


def _functions(probed: Probed) -> Iterator[TextTable]:
    for function in probed.functions:
        total_s = sum(line.time_s for line in function.rows)
        rows = []
        for row in function.rows[:MOST_LINES]:
            memory, times = ("", "", ""), ("", "", "", "")
            if row.mem_kib is not None:
                memory = (f"{row.mem_kib / 1024:,.3f}", f"{row.increment_kib / 1024:,.3f}", f"{row.occurrences:,}")
            if row.hits:
                share, hit_us = 100 * row.time_s / total_s if total_s else 0.0, row.time_s * 1e6 / row.hits
                times = (f"{row.hits:,}", f"{row.time_s * 1e3:,.3f}", f"{hit_us:,.1f}", f"{share:.1f}")
            rows.append((str(row.line), *memory, *times, indented(row.text)))
        rest = f"; {MOST_LINES} of {len(function.rows)} lines" if len(function.rows) > MOST_LINES else ""
        yield _table(
            title=plain(f"{function.name} in {PurePosixPath(function.file).name}, line by line{rest}"),
            columns=_LINE_COLUMNS,
            rows=tuple(rows),
            ends_in_text=True,
        )


def indented(code: str) -> str:
    """Return a line of code, cleaned and cut to LONGEST characters, with its indentation in spaces."""
    code = code.expandtabs(4)
    return " " * (len(code) - len(code.lstrip(" "))) + _text(code.strip())


# ---------------------------------------------------------------- valgrind


def _lost_by_version(found: Sequence[Probed]) -> TextTable | None:
    """Return the blocks definitely lost per step: a row for each variant and a column for each version; None without
    results. `*` marks figures that may be too small.
    """
    if not found:
        return None
    versions: dict[str, None] = {}
    rows: dict[str, dict[str, str]] = {}
    for probed in found:
        name = version(f"{probed.cell.image.series} {probed.cell.image.version}")
        versions.setdefault(name)
        _, blocks, added = probed.lost("DefinitelyLost")
        told = f"{_a_step(added)} ({blocks:,}){' *' if probed.problem else ''}"
        rows.setdefault(plain(f"{probed.cell.variant} on {probed.cell.lane}"), {})[name] = told
    rest = f"; {NOT_WHOLE}" if any(probed.problem for probed in found) else ""
    return _table(
        title=f"blocks definitely lost per step (in parentheses: the total in valgrind's own summary){rest}",
        columns=("variant", *versions),
        rows=tuple((variant, *(row.get(name, "") for name in versions)) for variant, row in rows.items()),
    )


def _leaks(probed: Probed) -> Iterator[TextTable]:
    if not probed.leaks:
        return
    lost = {kind: probed.lost(kind) for kind in sorted({leak.kind for leak in probed.leaks})}
    yield _table(
        title="lost by kind",
        columns=("kind", "bytes", "blocks", "blocks per step"),
        rows=tuple((plain(kind), f"{size:,}", f"{blocks:,}", _a_step(added))
                   for kind, (size, blocks, added) in lost.items()),
    )  # fmt: skip
    growing = [leak for leak in probed.leaks if leak.blocks_a_step > 0]
    if growing:
        yield _table(
            title="lost per step, by stack",
            columns=("kind", "blocks per step", "B/step", "stack"),
            rows=tuple((plain(leak.kind), _a_step(leak.blocks_a_step), _a_step(leak.bytes_a_step), _stack(leak.stack))
                       for leak in growing[:MOST_ROWS]),
            ends_in_text=True,
        )  # fmt: skip
    if probed.errors:
        yield _table(
            title="other errors",
            columns=("kind", "times"),
            rows=tuple((plain(kind), f"{count:,}") for kind, count in sorted(probed.errors.items())),
        )


def _stack(frames: Sequence[str]) -> str:
    """Return the four innermost frames that have a name, which tell the owner of a block; else the innermost four."""
    named = [frame for frame in frames if not frame.startswith("???")]
    return BETWEEN_FRAMES.join(_text(frame) for frame in (named or frames)[:4])


# ---------------------------------------------------------------- largest, artifacts


def _tries(probed: Probed) -> Iterator[TextTable]:
    if not probed.tries:
        return
    param = plain(str(dict(probed.probe.settings).get("param", "size")))
    rows = []
    for attempt in probed.tries:
        peak = f"{attempt.peak_rss_kib / 1024:,.0f}" if attempt.peak_rss_kib else ""
        rows.append((str(attempt.size), "fits" if attempt.fits else attempt.end, peak, _text(attempt.message)))
    yield _table(
        title=f"largest {param} that fits: {'none' if probed.largest is None else probed.largest}",
        columns=(param, "", "peak, MiB", "why"),
        rows=tuple(rows),
        names=2,
        ends_in_text=True,
    )
    for attempt, oom in ((attempt, attempt.oom) for attempt in probed.tries if attempt.oom is not None):
        place = f" on {plain(oom.device)}" if oom.device else ""
        wanted = f", requested {_mib(oom.wanted_bytes)} MiB" if oom.wanted_bytes is not None else ""
        held = [(_text(holder.op), _mib(holder.bytes)) for holder in oom.holders[:MOST_ROWS]]
        if oom.remaining_nodes is not None and oom.remaining_bytes is not None:
            held.append((f"{oom.remaining_nodes} others", _mib(oom.remaining_bytes)))
        yield _table(
            title=f"{param} {attempt.size}: what held the memory when {oom.source} ran out{place}{wanted}",
            columns=("operation", "MiB"),
            rows=tuple(held or [("not reported", "")]),
        )


_TABLES = (_ops, _functions, _leaks, _tries)
"""Each function yields no tables for a probe without results of its kind."""
