"""The short texts that all reports share: one cell, one finding, one host that could not be used.

Names of images, params and hosts go through `clean.plain`; escaping for a format is that format's own work.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Literal

from harness.model import BAD, GOOD, UNSURE, Cell, CellResult, CellVerdict, Finding, HostState, Lane, RunResult, Variant
from harness.report import figures
from harness.report.clean import plain, shortened, version
from harness.report.episodes import place_of_cell, worsened
from harness.report.worth import is_needless

Tone = Literal["bad", "good", "unsure", "none"]
SYMBOLS: dict[Tone, str] = {"bad": "✗", "good": "✓", "unsure": "?", "none": "–"}
WHY_LENGTH = 260
_PLACE = re.compile(r"^[^:\n]+:\d+: series\.\S+: ")
"""Where an image is named, before what became of it: `matrix.yaml:5: series.six.versions[0]: `."""
HINDERED = "not measured as planned"
UNCONFIRMED = "a side of it has fewer than two launches"


def tone(verdict: str) -> Tone:
    """How a verdict is coloured: `none` says nothing about the image."""
    if verdict in BAD:
        return "bad"
    if verdict in GOOD:
        return "good"
    return "unsure" if verdict in UNSURE else "none"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---------------------------------------------------------------- one cell


def verdict_word(verdict: CellVerdict) -> str:
    """All the bad verdicts that hold (`leak, slowdown`), or the one verdict."""
    bad = [name for name in verdict.verdicts if name in BAD]
    return ", ".join(bad) if len(bad) > 1 else verdict.verdict


def is_seen_once(result: CellResult) -> bool:
    """Whether it rests on a single launch that showed something: a search asks no more where it knows enough."""
    return result.verdict.verdict in UNSURE and result.verdict.trials == 1


def cell_figure(verdict: CellVerdict) -> str:
    """The figure of a cell in a table, rates in bare KiB a step: `7.84`, `≤0.02`, `SIGSEGV`, `+23 %`, or nothing."""
    name = verdict.verdict
    if name == "flat" and verdict.excluded_kib_per_step is not None:
        return f"≤{figures.number(verdict.excluded_kib_per_step)}"
    if name in ("leak", "suspect") and verdict.rate_kib_per_step is not None:
        return figures.number(verdict.rate_kib_per_step)
    if name == "slowdown" and verdict.step_drift is not None:
        return figures.percent(verdict.step_drift)
    if name == "plateau" and verdict.plateau_mib is not None:
        return figures.mebibytes(verdict.plateau_mib)
    return signal_name(verdict.signal) if name == "crash" and verdict.signal else ""


def cell_text(verdict: CellVerdict) -> str:
    """The verdict and its figure with the unit: `leak 7.84 KiB/step`, `flat ≤0.02 KiB/step`, `crash SIGSEGV`."""
    figure = cell_figure(verdict)
    unit = " KiB/step" if figure and verdict.verdict in ("flat", "leak", "suspect") else ""
    return f"{verdict_word(verdict)} {figure}{unit}".strip()


def cell_sentence(result: CellResult) -> str:
    """The cell's text with how often it was seen and why it is so."""
    verdict = result.verdict
    seen = f" ({_seen(verdict)})" if verdict.trials else ""
    reason = shortened(why(result), most=WHY_LENGTH)
    return f"{cell_text(verdict)}{seen}{': ' if reason else ''}{reason}"


def _seen(verdict: CellVerdict) -> str:
    trials = figures.count(verdict.trials, "trial")
    return f"{verdict.failed} of {trials} failed" if verdict.failed else f"{trials}, {verdict.steps:,} steps"


def why(result: CellResult) -> str:
    """The reason for the verdict; for a cell that the matrix leaves out, the matrix's own reason.

    What kept a cell from being measured as planned comes first.
    """
    if result.cell.excluded is not None:
        return f"excluded: {result.cell.excluded.why}"
    known = not result.problem or result.problem in result.verdict.why
    return result.verdict.why if known else f"{HINDERED}: {result.problem}; {result.verdict.why}"


# ---------------------------------------------------------------- one finding

_WHAT = {
    "leak": "memory leak",
    "slowdown": "steps that get slower as it runs",
    "oom": "running out of memory",
    "crash": "crash",
    "hang": "hang",
}
_METRICS = {"step_time": "slower steps", "peak_memory": "higher peak memory", "memory": "memory leak"}


def symptom(finding: Finding) -> str:
    """What is wrong, as a noun: `memory leak`, `slower steps`."""
    return _WHAT.get(finding.verdict) or _METRICS.get(finding.metric, "failure")


def finding_text(finding: Finding) -> str:
    """Where it begins or ends, how large it is, and how sure that is, on one line without the place."""
    return f"{symptom(finding)} {_boundary(finding)}{_size(finding)}{_evidence(finding)}"


def finding_line(finding: Finding) -> str:
    """`multidict on here, multidict_pop: memory leak since 6.3.0 (last good 6.2.0): 7.84 KiB/step (7.83 to 7.85)`."""
    return f"{finding_place(finding)}: {finding_text(finding)}"


def finding_place(finding: Finding) -> str:
    """`multidict on here, multidict_pop`."""
    return f"{plain(finding.series)} on {lane_text(finding.lane)}, {variant_text(finding.variant)}"


def _boundary(finding: Finding) -> str:
    after, before = version(finding.after), version(finding.before or "")
    if finding.kind == "bad_from_start":
        if finding.untestable:
            return f"in {after}, the oldest version that can be judged; before it {_gap(finding)}"
        return f"since {after}, the oldest version here, or longer"
    if finding.kind == "drift":
        return f"little by little, from {before} to {after}"
    old, new = ("good", "bad") if finding.kind == "first_bad" else ("bad", "good")
    if finding.untestable:
        return f"{'begins' if old == 'good' else 'ends'} between {before} ({old}) and {after} ({new}); {_gap(finding)}"
    verb = "since" if finding.kind == "first_bad" else "gone in"
    return f"{verb} {after} (last {old} {before})" if before else f"{verb} {after}"


def _gap(finding: Finding) -> str:
    return f"{listing(finding.untestable)} cannot be told"


def _size(finding: Finding) -> str:
    return "" if finding.effect is None else f": {figures.effect(finding.effect)}"


def _evidence(finding: Finding) -> str:
    """Chance, where it was tested; and what is missing where a side rests on a single launch."""
    chance = "" if finding.p is None else f", {figures.probability(finding.p)}"
    return chance if finding.confirmed else f"{chance}; not confirmed: {UNCONFIRMED}"


def listing(names: Sequence[str]) -> str:
    """Neighbouring versions in few words: `a`, `a and b`, `a to d (4 versions)`."""
    shown = [version(name) for name in names]
    if len(shown) > 2:
        return f"{shown[0]} to {shown[-1]} ({len(shown)} versions)"
    return " and ".join(shown)


def together(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; the names are clean already."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


# ---------------------------------------------------------------- places, hosts, totals


def lane_text(lane: Lane) -> str:
    return plain(str(lane))


def variant_text(variant: Variant) -> str:
    return plain(str(variant))


def params_text(variant: Variant) -> str:
    return plain(" ".join(f"{name}={value}" for name, value in variant.params))


def trouble(host: HostState) -> str:
    """One clear line on a host that could not be used."""
    return f"host {plain(host.host.name)} could not be used: {shortened(host.problem or '', most=WHY_LENGTH)}"


def troubles(result: RunResult) -> list[str]:
    return [trouble(host) for host in result.hosts if host.problem is not None]


def warnings(result: RunResult) -> list[str]:
    """What a reader must know before trusting the rest, each once, hosts that could not be used first."""
    return [*troubles(result), *dict.fromkeys(map(plain, result.warnings))]


def totals(result: RunResult) -> str:
    """`12 cells: 6 good, 2 worse than before, 2 bad, 1 unsure, 1 not measured; 36 trials in 3 min; seed 7`.

    Worse than before: good alone, but a finding says that its steps got slower or its peak higher. The seed is that of
    the launches' order, for `--seed`.
    """
    tones = [tone(cell.verdict.verdict) for cell in result.cells]
    needless = sum(map(is_needless, result.cells))
    worse = worsened(result)
    also = sum(of == "good" and place_of_cell(one.cell) in worse for of, one in zip(tones, result.cells, strict=True))
    counts = {
        "good": tones.count("good") - also,
        "worse than before": also,
        "bad": tones.count("bad"),
        "unsure": tones.count("unsure"),
        "not measured": tones.count("none") - needless,
        "not needed": needless,
    }
    parts = [f"{amount:,} {word}" for word, amount in counts.items() if amount]
    known = sum("" < trial.started < result.started for cell in result.cells for trial in cell.trials)
    ran = figures.count(sum(cell.verdict.trials for cell in result.cells) - known, "trial")
    earlier = f", {known:,} more known from earlier runs" if known else ""
    cells = figures.count(len(result.cells), "cell")
    time = figures.duration(result.duration_s)
    return f"{cells}: {', '.join(parts) or 'none'}; {ran} in {time}{earlier}; seed {result.plan.seed}"


def gaps(result: RunResult) -> list[str]:
    """What was not measured as planned, or not decided: a line for each verdict, series, lane and reason.

    An image's reason is told without its place in the file: versions that share it share the line. What a host could
    not do as a whole is among its `troubles`, and what a search did not need is no gap.
    """
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    host_problems = {state.problem for state in result.hosts}
    for entry in result.cells:
        known = tone(entry.verdict.verdict) in ("good", "bad")
        named = f"{entry.cell.image.series} {entry.cell.image.version}: "  # after the place of a range
        reason = _PLACE.sub("", entry.problem if known else why(entry)).removeprefix(named)
        if (reason or not known) and reason not in host_problems and not is_needless(entry):
            name = f"{entry.verdict.verdict}{', launched once' if is_seen_once(entry) else ''}"
            name = f"{name}, {HINDERED}" if known else name
            place = f"{plain(entry.cell.image.series)} on {lane_text(entry.cell.lane)}"
            groups.setdefault((name, place, shortened(reason, most=WHY_LENGTH)), []).append(entry.cell)
    return [_gap_line(*key, cells=cells) for key, cells in groups.items()]


def _gap_line(verdict: str, place: str, reason: str, *, cells: Sequence[Cell]) -> str:
    versions = list(dict.fromkeys(version(cell.image.version) for cell in cells))
    variants = list(dict.fromkeys(variant_text(cell.variant) for cell in cells))
    some = together(versions) if len(versions) <= 4 else f"{', '.join(versions[:3])} and {len(versions) - 3} more"
    which = variants[0] if len(variants) == 1 else f"{len(variants)} variants"
    return f"{verdict}: {some} ({place}, {which}){': ' if reason else ''}{reason}"
