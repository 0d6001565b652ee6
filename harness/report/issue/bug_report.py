"""Writes the bug report of `harness issue`: Markdown, ready to paste, for readers who do not have the harness."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from harness import amounts
from harness.agent.ending import signal_name
from harness.masking import is_private, scrubbed
from harness.model import (
    BAD,
    GOOD,
    GROWTHS,
    Build,
    CellResult,
    Install,
    Metric,
    Per,
    Pull,
    Trial,
    Varied,
    counted,
    signal_of,
    unit_per,
)
from harness.model.answers import Container, InPlace, Issue, Recipe
from harness.report import environment_diff
from harness.report.added import added_to
from harness.report.blocks import Block, Charts, Code, Drawing, Items, ReportSection, TextTable
from harness.report.charts import history_chart, traces
from harness.report.charts.vega_charts import png, svg
from harness.report.exports import markdown
from harness.report.issue.reproduction import (
    commands,
    data_notes,
    for_strangers,
    leak_to_see,
    local_images,
    private_registries,
    python_file,
)
from harness.report.text import finding_words, signal_words
from harness.report.text.harmless_text import plain_lines, shortened, version
from harness.report.text.names import at_most, lane_text, variant_text

TEXT = "issue.md"
"""Name of the file with the report."""
MOST_CODE = 30_000
"""The longest script included in the text, in characters; a longer one is only attached. Trackers accept 65,536."""
MOST_CHANGES = 40
MOST_ELSEWHERE = 8
TAIL_LINES = 25
OBVIOUS = ("Created", "Size")
"""Settings of an image that always differ and are irrelevant to the fault."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The text, the files to send with it (contents by name), and warnings for the sender."""

    markdown: str
    files: Mapping[str, str | bytes]
    warnings: tuple[str, ...]


def render(issue: Issue, *, harness_version: str) -> Report:
    """Return the report without private content: no credentials, and only environment variables that look harmless."""
    if issue.recipe is not None:
        issue = replace(issue, recipe=for_strangers(issue.recipe))
    code = "" if issue.recipe is None else python_file(issue.recipe)
    drawings = pictures(issue)
    parts = markdown.blocks(_document(issue, code, drawings, harness_version), level=1, clean=scrubbed)
    text = "\n\n".join(parts) + "\n"
    files: dict[str, str | bytes] = {TEXT: text, **({"repro.py": code} if code else {})}
    for name, drawing in drawings.items():
        files |= {f"{name}.png": png(drawing), f"{name}.svg": svg(drawing)}
    return Report(markdown=text, files=files, warnings=tuple(_warnings(issue, code)))


def _document(issue: Issue, code: str, drawings: Mapping[str, Drawing], harness_version: str) -> ReportSection:
    """Return the report; its renderer removes private content from all but the code."""
    finding, bad_version = issue.finding, issue.bad.cell.image.version
    size = "" if finding.effect is None else f", {amounts.effect(replace(finding.effect, ci=None))}"
    is_unsure = issue.good is None or issue.good.verdict.of(finding.metric).seen in ("blind", "suspect")
    is_unsure = is_unsure or finding.kind == "bad_from_start"
    good = "" if issue.good is None or is_unsure else f" ({issue.good.cell.image.version} is good)"
    what = finding.variant.scenario.in_words(finding_words.symptom(finding.metric, finding.verdict), finding.metric)
    added = [each.on(issue.number) for each in added_to(issue.added)]
    charts = Charts(drawn=tuple(drawings.values()), files=tuple(f"{name}.png" for name in drawings))
    sides = issue.difference
    changed = "" if sides is None else f"What changed between {sides.before} and {sides.after}"
    failure = _failure(issue)
    sections = (
        *(_listed(each.title, each.lines(numbered=False)) for each in added),
        ReportSection(title="Versions", blocks=(_versions(issue), charts)),
        ReportSection(title="To reproduce", blocks=tuple(_reproduction(issue, code))),
        _listed("Confidence", _sure(issue)),
        _listed("Where it occurs, and what was ruled out", _ruled_out(issue)),
        ReportSection(
            title="Output of the failed launch", blocks=(Code(text=failure, language="text"),) if failure else ()
        ),
        _listed(changed, _changed(issue)),
        _listed("New lines in the output (numbers, addresses and temporary paths are shown as #)", issue.new_lines),
    )
    installed = issue.system.get("packages", {})
    packages = ", ".join(f"{name} {version}" for name, version in sorted(installed.items()))
    libraries = ", ".join(map(str, issue.system.get("libraries", ())))
    return ReportSection(
        title=f"{finding.series} {bad_version}: {what}{size}{good}",
        blocks=(
            f"{finding_words.line(finding)}.",
            *issue.causes,
            *(each for each in sections if each.blocks),
            ReportSection(title="System", blocks=(_system(issue),)),
            ReportSection(
                title=f"Packages and libraries in {bad_version}",
                fold="shut",
                blocks=(packages or "packages not known", libraries or "libraries not known"),
            ),
            f"Measured with harness {harness_version}: every launch used a fresh container or process, and versions "
            "took turns.",
        ),
    )


def _listed(title: str, lines: Iterable[str]) -> ReportSection:
    """Return a section with a list; it has no blocks if there are no lines."""
    told = tuple(lines)
    return ReportSection(title=title, blocks=(Items(lines=told),) if told else ())


def _reproduction(issue: Issue, code: str) -> Iterator[Block]:
    metric = issue.finding.metric
    good = "" if issue.good is None else f" With {issue.good.cell.image.version}: {_measured(issue.good, metric)}."
    expect = f"With {issue.bad.cell.image.version}: {_measured(issue.bad, metric)}.{good}"
    in_place = issue.recipe is not None and isinstance(issue.recipe.run, InPlace)
    if in_place:
        yield f"It is one command, which differs between versions only in a variable. {expect}"
    elif not code:
        yield issue.problem
    elif len(code) <= MOST_CODE:
        yield Code(text=code.removesuffix("\n"), language="python")
        yield f"Save it as repro.py. {expect}"
    else:
        yield f"The script is attached as repro.py, which contains the files that it needs. {expect}"
    if issue.dockerfile:
        yield Code(text=scrubbed(issue.dockerfile).rstrip(), language="dockerfile")
    recipe = issue.recipe
    if recipe is not None:
        yield Code(text=scrubbed(commands(recipe)), language="sh")
    for each in added_to(issue.added):
        yield from each.on(issue.number).reproduction(recipe)
    yield from _notes(issue)


def _warnings(issue: Issue, code: str) -> Iterator[str]:
    hosts = {entry.cell.lane.host for entry in (*issue.history, *issue.elsewhere)}
    called = [
        host.name for host in hosts if host.name == _machine(issue) or host.name in re.split(r"[@/:]", host.engine)
    ]
    if called:
        yield f"the report contains machine names, which the matrix uses as host names: {', '.join(sorted(called))}"
    source = issue.bad.cell.image.source
    if isinstance(source, Build):
        missing = "the files it copies" if issue.dockerfile else "its Dockerfile and the files it copies"
        yield f"the image is built from {source.context}: attach {missing}"
    if hosts_named := private_registries(issue):
        yield f"the report names a registry that may be private: {', '.join(hosts_named)}"
    kept = "" if issue.recipe is None else commands(issue.recipe)
    if local := [name for name in local_images(issue) if name in kept]:
        yield f"readers cannot get images that exist only on this machine: publish or describe {', '.join(local)}"
    if scrubbed(code) != code:
        yield "the script names a home folder or something that looks like a credential: check it before you send it"


# ---------------------------------------------------------------- what to expect, and with what confidence


def _measured(entry: CellResult, metric: Metric) -> str:
    """Return the figure of the finding; without one, and for growth and failures, the verdict and the step time."""
    figure = signal_words.figure_text(metric, entry.verdict)
    if figure and signal_of(metric).kind in ("level", "value"):
        return f"{signal_words.shown_signal(metric).title} {figure}"
    step = signal_words.figure_text("step_time", entry.verdict)
    return signal_words.cell_text(entry.verdict) + (f", {step} a {counted(entry.verdict.per)}" if step else "")


def _notes(issue: Issue) -> Iterator[str]:
    if issue.recipe is None:
        return
    source = issue.bad.cell.image.source
    if isinstance(source, Build):
        what = "the Dockerfile above" if issue.dockerfile else "a Dockerfile that is not part of this report"
        yield f"The image is built from the folder {source.context.name}, with {what} and the files it copies."
    if issue.recipe.files and isinstance(issue.recipe.run, InPlace):
        yield f"It needs these files in its folder: {', '.join(sorted(issue.recipe.files))}."
    yield from leak_to_see(issue.recipe)
    yield from data_notes(issue.recipe)
    yield from _images_out_of_reach(issue, issue.recipe)
    for place in issue.recipe.missing:
        yield f"The script also needs {place} in the same folder, which is too large to be part of this report."
    if issue.recipe.withheld:
        names = ", ".join(issue.recipe.withheld)
        file = issue.recipe.cell.variant.scenario.env_file
        by = "" if file is None else f", as by the env file {file.name}"
        yield f"These variables were also set{by}; their values are not shown here: {names}."


def _images_out_of_reach(issue: Issue, recipe: Recipe) -> Iterator[str]:
    """Yield which images readers cannot get, and what replaces them. `recipe` is the result of `for_strangers`."""
    source = recipe.run.source if isinstance(recipe.run, Container) else None
    for name in local_images(issue):
        if isinstance(source, Install) and source.base != name:
            yield f"It was measured on top of {name}, an image that only that machine has; {source.base} replaces it."
        else:
            yield f"The image {name} exists only on that machine; no registry is known to have it."
    for host in private_registries(issue):
        yield f"The registry {host} may be private: readers may need another source for its images."


def _sure(issue: Issue) -> Iterator[str]:
    finding = issue.finding
    if finding.effect is not None:
        over = "" if finding.effect.ci is None else "; the interval is over launches"
        yield f"Size: {amounts.effect(finding.effect)}{over}."
    if finding.p is not None:
        yield f"Significance: {amounts.probability(finding.p)}."
    yield f"Confirmed: {'yes' if finding.confirmed else 'no, too few launches'}. {_launches(issue)}."
    for entry in (issue.good, issue.bad):
        if entry is not None:
            name, told = version(entry.cell.image.version), _measured(entry, finding.metric)
            if signal_of(finding.metric).kind in ("growth", "outcome"):
                told = f"{signal_words.cell_text(entry.verdict)}; {signal_words.why(entry)}"
            yield f"{name}: {shortened(told, most=signal_words.WHY_LENGTH)}"


def _launches(issue: Issue) -> str:
    """Return how many launches of the bad version show the fault, and how many of the good one do not; for a level, how
    many are compared.
    """
    bad, good, kind = issue.bad.verdict, issue.good, signal_of(issue.finding.metric).kind
    able, fine = (0 if side is None else side.verdict.able(issue.finding.metric) for side in (issue.bad, good))
    count, name = amounts.count(able, "launch"), version(issue.bad.cell.image.version)
    others = f"{amounts.count(fine, 'launch')} of {good.cell.image.version}" if good is not None and fine else ""
    if kind not in ("growth", "outcome"):
        return f"{count} of {name}{f' against {others}' if others else ''}"
    showing = bad.agreeing if kind == "growth" else bad.failed
    how = ""
    if issue.finding.metric in GROWTHS:  # in brief launches, counts are not judged
        how = " at a constant rate" if showing < able else ""
        brief = 0 if good is None else sum(trial.end == "stopped" and not trial.ran_to_its_end for trial in good.trials)
        if good is not None and brief:
            whole = amounts.count(good.verdict.trials - brief, "launch")
            others = f"the {whole} of {good.cell.image.version} that ran the whole budget"
    short = bad.too_short
    if kind == "growth":
        short = sum(trial.measured and trial.last_step < bad.steps for trial in issue.bad.trials)
    is_short = 0 < short == bad.trials - showing if kind == "growth" else short > 0
    rest = f" ({amounts.count(short, 'other launch')} ended too soon to show it)" if is_short else ""
    shown = count if showing == able else f"{showing:,} of {count}"
    clean = others and good is not None and not (kind == "outcome" and good.verdict.failed)
    one = able == 1
    return f"{shown} of {name} show{'s' if one else ''} it{how}{rest}{f', and {others} do not' if clean else ''}"


# ---------------------------------------------------------------- what was ruled out


def _ruled_out(issue: Issue) -> Iterator[str]:
    if issue.bad.verdict.layer:
        yield f"Layer: {issue.bad.verdict.layer}."
    if issue.trial is not None:
        yield from growth_lines(issue.trial, issue.finding.metric, issue.bad.verdict.per)
    fine, same, others = _elsewhere(issue)
    metric = issue.finding.metric
    is_growth = signal_of(metric).kind == "growth"
    small = [entry for entry in fine if is_growth and entry.verdict.grows_slowly(metric)]
    fine = [entry for entry in fine if entry not in small]
    lists = ("Not present", fine), ("Small growth, below the limit,", small), ("Also present", same)
    for what, found in (*lists, ("Another fault", others)):
        told = [f"{what} in {_place(entry)}: {signal_words.cell_text(entry.verdict)}" for entry in found]
        yield from at_most(told, MOST_ELSEWHERE, rest="And {} more.")
    if not issue.elsewhere:
        yield "This version was not measured with other params, in other scenarios or on other hosts."


def _elsewhere(issue: Issue) -> tuple[list[CellResult], list[CellResult], list[CellResult]]:
    """Return the other cells of this version without the fault, with the same fault, and with another fault.

    A change of a level, such as slower steps, has no cell verdict, so it is not found in other cells.
    """
    faults = set(issue.bad.verdict.verdicts or (issue.bad.verdict.verdict,)) & BAD
    bad = [entry for entry in issue.elsewhere if entry.verdict.verdict in BAD]
    same = [entry for entry in bad if faults & {entry.verdict.verdict, *entry.verdict.verdicts}]
    others = [entry for entry in bad if entry not in same]
    return [entry for entry in issue.elsewhere if entry not in bad], same, others


def _place(entry: CellResult) -> str:
    return f"{variant_text(entry.cell.variant)} on {lane_text(entry.cell.lane)}, same version"


def _failure(issue: Issue) -> str:
    """Return the end of the failed trial's output; "" if it did not fail."""
    trial = issue.trial
    if trial is None or trial.ended_well:
        return ""
    lines = [*plain_lines(trial.told, most=TAIL_LINES), *plain_lines(trial.failure.stacks, most=TAIL_LINES)]
    lines += plain_lines(trial.output.tail, most=TAIL_LINES)
    text = scrubbed("\n".join(filter(None, lines)))
    if machine := _machine(issue):
        text = re.sub(rf"\b{re.escape(machine)}\b", "[host]", text)
    return text


def _machine(issue: Issue) -> str:
    """Return the name of the machine that ran the trial; "" if it is unknown or `localhost`."""
    name = "" if issue.trial is None else str(issue.trial.fingerprint.get("name") or "")
    return name if name not in ("", "localhost") else ""


# ---------------------------------------------------------------- around it


def _changed(issue: Issue) -> Iterator[str]:
    if issue.difference is None or issue.good is None:
        return
    if isinstance(issue.bad.cell.image.source, Varied):  # what the command starts is not known, and is no image
        yield f"{_image(issue.good)} became {_image(issue.bad)}"
        return
    sections = issue.difference.sections
    found = [
        (section.title, change) for section in sections for change in section.changes if change.name not in OBVIOUS
    ]
    told = [f"{title}: {environment_diff.change_line(change)}" for title, change in found]
    yield from at_most(told, MOST_CHANGES)
    yield from (f"{section.title}: not known" for section in sections if section.unknown)


# ---------------------------------------------------------------- bug report tables


MOST_VERSIONS = 60
SYSTEM = {
    "engine": "engine", "kernel": "kernel", "architecture": "architecture", "cpu": "CPU", "cpus": "CPUs",
    "memory_bytes": "memory, bytes", "python": "Python", "implementation": "implementation", "libc": "C library",
    "huge_pages": "transparent huge pages",
}  # fmt: skip


def _versions(issue: Issue) -> TextTable:
    """Return a table of the versions in the finding's row of the matrix, the newest MOST_VERSIONS of them. The first
    column of figures has the signal of the finding, or memory if the other columns have it or if it is no figure. A
    column without any text is left out.
    """
    metric, per = issue.finding.metric, issue.bad.verdict.per
    is_figure = signal_of(metric).kind in ("growth", "level", "value")
    first = metric if is_figure and metric not in ("step_time", "peak_memory") else "memory"
    of = "" if first == "memory" else f"{signal_words.shown_signal(first).title}, "
    growth = f"{of}{unit_per(signal_of(first), per)} (interval)"
    title = growth if signal_of(first).kind == "growth" else signal_words.shown_signal(first).title
    columns = ("version", "image", "verdict", title, f"ms/{counted(per)} (interval)", "peak MiB", "launches")
    rows = [_row(entry, issue, first) for entry in issue.history[-MOST_VERSIONS:]]
    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    return TextTable(
        columns=tuple(columns[place] for place in kept), rows=tuple(tuple(row[place] for place in kept) for row in rows)
    )


def _row(entry: CellResult, issue: Issue, first: Metric) -> list[str]:
    verdict, finding = entry.verdict, issue.finding
    word = signal_words.verdict_word(verdict)
    if verdict.verdict in GOOD and verdict.of(finding.metric).seen == "bad":  # its memory alone is flat
        word = finding.variant.scenario.in_words(finding_words.symptom(finding.metric, finding.verdict), finding.metric)
    of = f" of {verdict.at_risk} that got as far" if verdict.too_short else ""
    failed = f", {verdict.failed}{of} failed" if verdict.failed else ""
    peak_kib, _ = signal_words.figure_of("peak_memory", verdict)
    step_s, around = signal_words.figure_of("step_time", verdict)
    step_ms = None if step_s is None else 1000 * step_s
    own = signal_words.figure_text(first, verdict)
    if signal_of(first).kind == "growth":
        own = amounts.with_interval(*signal_words.figure_beside(first, verdict))
    return [
        entry.cell.image.version,
        _image(entry),
        word + (f" {signal_name(verdict.signal)}" if verdict.signal else ""),
        own,
        amounts.with_interval(step_ms, around and (1000 * around[0], 1000 * around[1])),
        "" if peak_kib is None else amounts.number(peak_kib / 1024),
        f"{verdict.trials}{failed}",
    ]


def _image(entry: CellResult) -> str:
    source = entry.cell.image.source
    digest = f" ({entry.digest[:19]})" if entry.digest else ""
    if isinstance(source, Install):
        return f"{' '.join(source.packages)}{digest}"
    if isinstance(source, Varied):
        return f"{source.variable}={entry.cell.image.version}"
    return f"{source.reference if isinstance(source, Pull) else 'built'}{digest}"


def _system(issue: Issue) -> Block:
    """Return a table of facts about the machine, without private variables."""
    told = issue.system
    if not told:
        return "not known"
    rows = [(label, str(told[name])) for name, label in SYSTEM.items() if name in told]
    gpus = [", ".join(f"{name} {value}" for name, value in gpu.items()) for gpu in told.get("gpus", ())]
    rows += [("GPU", text) for text in gpus or ["none used"]]
    rows += told.get("ranks and links", {}).items()
    environment = told.get("environment", {}).items()
    rows += [(name, value) for name, value in environment if not is_private(name, value)]
    return TextTable(columns=("", ""), rows=tuple(rows))


# ---------------------------------------------------------------- plot


POINTS = 200


def pictures(issue: Issue) -> dict[str, Drawing]:
    """Return the drawings that have data, by file name without extension: the finding's figure over the versions, and
    the longest launch of both sides over its steps.
    """
    versions = history_chart.of_findings([issue.finding], issue.history)
    drawn = {"versions": versions, "steps": _steps(issue)}
    return {name: drawing for name, drawing in drawn.items() if drawing is not None}


def _steps(issue: Issue) -> Drawing | None:
    """Return a chart of the step time or resident memory of the longest launch of the good and the bad version; None
    without samples.
    """
    column = "step_s" if issue.finding.metric == "step_time" else "rss_kib"
    sides = [entry for entry in (issue.good, issue.bad) if entry is not None]
    lines = [line for entry in sides for line in _lines(entry, column)]
    if not lines:
        return None
    title, _ = traces.MEASURES[column]
    return Drawing(
        chart="trace", title=title, description=f"{title}, over the steps", rows={"lines": lines, "looks": []}
    )


def _lines(entry: CellResult, column: str) -> Iterator[dict[str, object]]:
    sampled = [trial for trial in entry.trials if trial.trace is not None and trial.trace.step.size > 1]
    longest = max(sampled, key=lambda trial: trial.last_step, default=None)
    name = f"{version(entry.cell.image.version)} ({signal_words.verdict_word(entry.verdict)})"
    if longest is not None and (line := traces.line_row(longest, column, points=POINTS, name=name)) is not None:
        yield line


# ---------------------------------------------------------------- memory shares


def growth_lines(trial: Trial, metric: Metric = "memory", per: Per = "step") -> Iterator[str]:
    """Yield the growth of what a finding counts, and of each layer of the main process between the first and the last
    look, both after gc.collect, and what the final gc.collect and malloc_trim released.
    """
    counts = {} if trial.trace is None else trial.trace.counts
    if metric in counts and "step" in counts:
        known = [
            (step, value) for step, value in zip(counts["step"], counts[metric], strict=True) if math.isfinite(value)
        ]
        if len(known) > 1 and known[-1][0] > known[0][0]:
            (begin, old), (end, new) = known[0], known[-1]
            rate = amounts.in_unit((new - old) / (end - begin), unit_per(signal_of(metric), per))
            title = signal_of(metric).title
            yield f"{title[:1].upper()}{title[1:]}: {rate} between the first and last count."
    looks = trial.trace.looks if trial.trace is not None else ()
    if len(looks) < 2 or looks[-1].step <= looks[0].step:
        return
    first, last = looks[0], looks[-1]
    steps = last.step - first.step
    where = " of the main process" if metric == "worker_memory" else ""
    unit = unit_per(signal_of("memory"), per)
    for title, column in (("Resident memory", "rss_kib"), ("C heap in use", "heap_kib")):
        old_kib, new_kib = first.of(column), last.of(column)
        if old_kib is not None and new_kib is not None:
            rate = amounts.in_unit((new_kib - old_kib) / steps, unit)
            yield f"{title}{where}: {rate} between the first and last look."
    before, after = first.of("blocks"), last.of("blocks")
    if before is not None and after is not None:
        blocks_a_step = (after - before) / steps
        what = per if per in ("line", "request") else "step"
        yield f"Python objects{where}: {amounts.number(blocks_a_step)} more allocated blocks a {what}."
    # Memory that gc.collect or malloc_trim releases is not leaked.
    yield from _released_by("gc.collect", last.of("rss_before_kib"), last.of("rss_kib"))
    yield from _released_by("malloc_trim", last.of("rss_kib"), last.of("rss_trimmed_kib"))


def _released_by(what: str, before_kib: float | None, after_kib: float | None) -> Iterator[str]:
    if before_kib is not None and after_kib is not None:
        mib = (before_kib - after_kib) / 1024
        yield f"{what} at the end released {amounts.in_unit(mib, 'MiB') if mib > 0.1 else 'nothing'}."
