"""Makes the table of each series and lane that all reports show: a row per variant, a column per version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from harness import amounts
from harness.model import (
    BAD,
    SIGNALS,
    CellResult,
    CellVerdict,
    Finding,
    Metric,
    Observation,
    RunResult,
    SignalState,
    SignalVerdict,
    Trials,
    bad_along,
    grouped,
    unit_per,
)
from harness.report import blocks
from harness.report.blocks import Box, TextTable
from harness.report.text import harmless_text, names, signal_words
from harness.report.text.finding_words import magnitude
from harness.report.text.harmless_text import plain
from harness.report.text.signal_words import Strip, Tone

Mark = Literal["first_bad", "first_fixed", "look"]
MARKS: dict[Mark, str] = {"first_bad": "▼", "first_fixed": "▲", "look": "!"}
_SIGNS = {
    "✗": "bad", "✓": "good", "?": "not decided", "–": "not measured", "▼": "first bad", "▲": "first good again",
    "!": "good, but there is something to look at",
}  # fmt: skip
_ABSENT = {
    "untested": "should have run but did not",
    "incompatible": "cannot run on that card or processor",
    "excluded": "left out by the matrix",
    "not run": "not needed",
    "unknown": "ran, but without that figure",
}
"""The words in cells marked –, and their meanings."""
MOST_ACROSS = 8
"""Most versions that fit side by side on a page; with more, the newest would be out of sight."""
SO_FAR = f"{signal_words.SO_FAR}: the cell has fewer launches than its verdict needs, so the verdict may change"
ONLY = "{}: a change of this size is not ruled out, and the limit is smaller, so this is not decided"
CHANGED = "rows of figures show what was compared, over the steps and rounds that all versions share"


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One cell as tables show it. `word` and `figure` are plain text; `shows` says what they show (None: a level).
    `strip` has a tone for each group of signals, and is empty if no signal was recorded.
    """

    tone: Tone
    word: str
    figure: str
    result: CellResult
    mark: Mark | None = None
    strip: Strip = ()
    shows: signal_words.Showing | None = None

    @property
    def symbol(self) -> str:
        return MARKS[self.mark] if self.mark else signal_words.SYMBOLS[self.tone]

    @property
    def kind(self) -> str:
        """Return the style class: the tone, or for a cell that was not measured the reason, such as `not-run`."""
        return self.tone if self.tone != "none" else self.word.replace(" ", "-")

    @property
    def marked(self) -> str:
        """Return the symbol, the word and the figure: `✗ leak 7.84`."""
        return " ".join(filter(None, (self.symbol, self.word, self.figure)))

    @property
    def text(self) -> str:
        """Return word and figure; if they show the cell's verdict, with the unit: `leak 7.84 KiB/step`."""
        if self.tone != "none" and self.shows == "verdict" and not signal_words.is_seen_once(self.result):
            return signal_words.cell_text(self.result.verdict)
        return f"{self.word} {self.figure}".strip()


@dataclass(frozen=True, kw_only=True)
class Row:
    """The verdicts on one variant, with a row of `figures` below them for each level that changed. `cells` has an entry
    for each version of the table, None where no cell was planned.

    `metric`: what a row of figures shows. `follows`: all its changes are consequences of others.
    """

    label: str
    cells: tuple[Shown | None, ...]
    metric: Metric = ""
    follows: bool = False
    figures: tuple[Row, ...] = ()

    @property
    def levels(self) -> Mapping[Metric, Row]:
        """Return the rows of figures by their metric."""
        return {row.metric: row for row in self.figures}

    @property
    def is_bad(self) -> bool:
        return any(cell is not None and cell.tone == "bad" for row in (self, *self.figures) for cell in row.cells)


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """The table of one series and lane. `title` names what all rows share, which their labels do not repeat."""

    title: str
    versions: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def is_tall(self) -> bool:
        """Return whether a page lists the versions vertically, because they do not fit side by side."""
        return len(self.versions) > max(MOST_ACROSS, len(self.lines))

    @property
    def lines(self) -> list[Row]:
        """Return all rows: each with its rows of figures."""
        return [each for row in self.rows for each in (row, *row.figures)]

    def laid_out(self, *, is_tall: bool) -> tuple[tuple[str, ...], list[tuple[str, tuple[Shown | None, ...]]]]:
        """Return the header, and the lines with their labels: of the rows, or if it `is_tall`, of the versions."""
        labels, cells = [row.label for row in self.lines], [row.cells for row in self.lines]
        if is_tall:
            return ("version", *labels), list(zip(self.versions, zip(*cells, strict=True), strict=True))
        return ("variant", *self.versions), list(zip(labels, cells, strict=True))

    @property
    def shown(self) -> Iterator[Shown]:
        return (cell for row in self.lines for cell in row.cells if cell is not None)

    @property
    def measured(self) -> bool:
        return any(cell.tone != "none" for cell in self.shown)


def legend(shown: Sequence[ReportTable]) -> list[str]:
    """Return lines that explain the signs, words, figures and marks in these tables."""
    cells = [cell for table in shown for cell in table.shown]
    signs = {cell.symbol for cell in cells}
    absent = {cell.word for cell in cells if cell.tone == "none"}
    coarse = next((cell.figure for cell in cells if cell.shows == "coarse"), "")
    lines = [
        "  ".join(f"{sign} {meaning}" for sign, meaning in _SIGNS.items() if sign in signs),
        "".join(f"– {word}: {meaning}  " for word, meaning in _ABSENT.items() if word in absent).rstrip(),
        signal_words.strip_legend(tone for strip in {cell.strip for cell in cells} for tone in strip),
        units(cell.result.verdict for cell in cells if cell.shows == "verdict"),
        ONLY.format(coarse) if coarse else "",
        SO_FAR if any(cell.shows == "so far" for cell in cells) else "",
        CHANGED if any(row.figures for table in shown for row in table.rows) else "",
    ]
    return [line for line in lines if line]


def units(shown: Iterable[CellVerdict]) -> str:
    """Return an explanation of the rates among the figures of these verdicts; "" if none of the figures is a rate."""
    known = [verdict for verdict in shown if signal_words.word_and_figure(verdict)[1]]
    small = any(verdict.grows_slowly() for verdict in known)
    own = {verdict.verdict for verdict in known if not verdict.grows_slowly()}
    rates = "the rate of growth" if small else "a leak's rate" if own & {"leak", "suspect"} else ""
    ruled_out = "after ≤, the smallest leak that `flat` rules out" if "flat" in own else ""
    told = "; ".join(filter(None, (rates, ruled_out)))
    return f"figures, in {unit_per(SIGNALS['memory'], known[0].per)}: {told}" if told else ""


def tables(result: RunResult) -> list[ReportTable]:
    """Return one table per series and lane, in the order of the plan."""
    groups = grouped(((entry.cell.image.series, str(entry.cell.lane)), entry) for entry in result.cells)
    order, found, notable = names.versions_of(result), [], names.notable_cells(result)
    for group in groups.values():
        cell = group[0].cell
        present = dict.fromkeys(entry.cell.image.version for entry in group)
        known = (name for name in order.get(cell.image.series, ()) if name in present)
        versions = list(dict.fromkeys([*known, *present]))
        scenarios = {entry.cell.variant.scenario.name for entry in group}
        is_shared = len(scenarios) == 1 and all(entry.cell.variant.params for entry in group)
        title = f"{plain(cell.image.series)} on {names.lane_text(cell.lane)}"
        least = result.plan.trials.least
        rows = (
            row_of(some, versions, result.findings, notable=notable, least=least, is_short=is_shared)
            for some in grouped((names.row_key(entry.cell), entry) for entry in group).values()
        )
        found.append(
            ReportTable(
                title=f"{title}, {plain(scenarios.pop())}" if is_shared else title,
                versions=tuple(map(harmless_text.version, versions)),
                rows=tuple(rows),
            )
        )
    return found


def row_of(
    entries: Sequence[CellResult],
    versions: Sequence[str],
    findings: Sequence[Finding],
    *,
    notable: Mapping[names.CellKey, Sequence[Observation]] = MappingProxyType({}),
    least: int = Trials.least,
    is_short: bool = False,
) -> Row:
    """Return the row of one series, lane and variant: verdicts, and figures for each level or value that changed.
    `least` is the number of launches that a cell needs.
    """
    results, cell = {entry.cell.image.version: entry for entry in entries}, entries[0].cell
    own = names.row_key(cell)
    here = [finding for finding in findings if names.row_key(finding) == own]
    label = names.params_text(cell.variant) if is_short else names.variant_text(cell.variant)
    by_size = [finding.metric for finding in sorted(here, key=magnitude, reverse=True) if _is_level(finding)]
    verdicts = {version: _verdict_cell(entry, least=least, by_size=by_size) for version, entry in results.items()}
    told = {version: _noticed(_marked(shown, here, by_size), notable) for version, shown in verdicts.items()}
    figures = []
    for metric in dict.fromkeys(finding.metric for finding in here if _is_level(finding)):
        changed = [finding for finding in here if finding.metric == metric and _is_level(finding)]
        cells = _median_cells(results, versions, changed, metric)
        title = signal_words.shown_signal(metric).title
        follows = all(finding.consequence_of for finding in changed)
        figures.append(Row(label=f"{label}, {title}", cells=cells, metric=metric, follows=follows))
    return Row(label=label, cells=tuple(map(told.get, versions)), figures=tuple(figures))


def _is_level(finding: Finding) -> bool:
    """Return whether the finding compares levels or values of versions; other findings show in the row of verdicts."""
    return signal_words.shown_signal(finding.metric).kind in ("level", "value") and finding.verdict not in BAD


def _marked(cell: Shown, findings: Iterable[Finding], by_size: Sequence[Metric]) -> Shown:
    """Return the cell, marked if a change begins at its version and the cell shows that change."""
    verdict, version = cell.result.verdict, cell.result.cell.image.version
    own = signal_words.tone(verdict.verdict)

    def is_shown(finding: Finding) -> bool:  # a level shows only if it is the worst signal
        return not _is_level(finding) or (own != "bad" and signal_words.matter(verdict, by_size) == finding.metric)

    begins = [finding for finding in findings if finding.after == version and finding.kind != "drift"]
    if any(finding.kind != "first_fixed" and is_shown(finding) for finding in begins):
        return replace(cell, mark="first_bad")
    is_fixed = any(finding.kind == "first_fixed" and (cell.strip or not _is_level(finding)) for finding in begins)
    if not is_fixed or (cell.strip and cell.tone == "bad"):
        return cell
    if own == "good" and not verdict.provisional:  # show the fix, not a blind signal
        word, figure = signal_words.word_and_figure(verdict)
        cell = replace(cell, word=word, figure=figure, shows="verdict")
    return replace(cell, mark="first_fixed")


def _noticed(cell: Shown, notable: Mapping[names.CellKey, Sequence[Observation]]) -> Shown:
    """Return the cell; if nothing worse is known, it names the notable observation that was made there, or else it is
    marked if its memory grows slowly.
    """
    seen = notable.get(names.cell_key(cell.result.cell), ())
    if not seen and cell.word == signal_words.SMALL:
        return replace(cell, mark=cell.mark or "look", tone="unsure")
    states = {signal.seen for signal in cell.result.verdict.signals.values()}
    is_blind = cell.shows in ("signal", "coarse") and states.isdisjoint(("bad", "suspect"))
    if not seen or not (cell.tone == "good" or is_blind):
        return cell
    title = signal_words.shown_signal(seen[0].signal).title
    return replace(cell, mark=cell.mark or "look", tone="unsure", word=title, figure="", shows="signal")


def _verdict_cell(entry: CellResult, *, least: int, by_size: Sequence[Metric]) -> Shown:
    word, figure, shows = signal_words.cell_words(entry.verdict, least=least, by_size=by_size)
    if entry.cell.excluded is not None:
        word = "excluded"
    elif signal_words.is_needless(entry):
        word = "not run"
    elif signal_words.is_seen_once(entry) and shows == "verdict":
        word = f"{word}, 1 launch"
    return Shown(
        tone=entry.verdict.state,
        word=word,
        figure=figure,
        result=entry,
        strip=signal_words.strip(entry.verdict) if entry.verdict.trials else (),
        shows=shows,
    )


def _size(finding: Finding) -> str:
    """Return the size of a change for a table; an amount by which a level falls has a minus."""
    effect = finding.effect
    if effect is not None and effect.unit != "ratio" and finding.kind == "first_fixed":
        effect = replace(effect, value=-effect.value)
    return "" if effect is None else amounts.change(effect)


def _median_cells(
    results: Mapping[str, CellResult], versions: Sequence[str], findings: Sequence[Finding], metric: Metric
) -> tuple[Shown | None, ...]:
    """Return the cells of a row of figures, which share a unit, with the finding's size at each change.

    Cells are bad from each first bad version until the next good version, and unsure where a finding is undecided.
    """
    marks: dict[str, Mark] = {
        finding.after: "first_fixed" if finding.kind == "first_fixed" else "first_bad"
        for finding in findings
        if finding.kind != "drift"  # a drift has no first bad version
    }
    sizes = {finding.after: _size(finding) for finding in findings}
    untold = {version for finding in findings for version in finding.untestable}
    known = {
        version: signal_words.figure_of(metric, results[version].verdict)[0]
        for version in versions
        if version in results
    }
    like = amounts.middle(known.values())
    sides = [(known.get(finding.before or ""), known.get(finding.after)) for finding in findings]
    digits = max((amounts.digits_apart(*both) for both in sides), default=amounts.DIGITS)
    cells: list[Shown | None] = []
    for version, bad in zip(versions, bad_along(versions, findings), strict=True):
        entry, mark, value = results.get(version), marks.get(version), known.get(version)
        size = sizes.get(version, "")
        if entry is None or value is None:
            cells.append(None if entry is None else Shown(tone="none", word="unknown", figure=size, result=entry))
            continue
        signal = entry.verdict.signals.get(metric)
        is_open = entry.verdict.provisional or (signal is not None and signal.seen in ("suspect", "blind"))
        tone: Tone = "unsure" if version in untold else "bad" if bad else "good"
        if (tone == "good" and is_open) or (signal is not None and signal.is_uncompared):
            tone = "unsure"
        word = signal_words.value_text(metric, value, like=like, digits=digits, per=entry.verdict.per)
        cells.append(Shown(tone=tone, word=word, figure=size, result=entry, mark=mark))
    return tuple(cells)


# ---------------------------------------------------------------- all signals of a row

_SIGNAL_COLUMNS = ("signal", "state", "oldest", "newest", "worst bad", "limit", "ruled out above", "why")
_WORST_FIRST: tuple[SignalState, ...] = ("bad", "suspect", "blind", "good", "none")


def _rank(signal: SignalVerdict) -> tuple[int, bool]:
    """Return a sort key, the worst first. A value that could not be judged comes before good ones."""
    is_open = signal.seen == "none" and signal.value is not None
    return _WORST_FIRST.index("good" if is_open else signal.seen), not is_open


def signal_table(row: Row) -> TextTable | None:
    """Return every signal of a row: its worst state over the versions with the reason, the figures of the oldest and
    the newest version that have one, the worst bad figure, and the largest change that is not ruled out. None without
    any.
    """
    verdicts = [cell.result.verdict for cell in row.cells if cell is not None and cell.result.verdict.trials]
    rows: list[blocks.Row] = []
    per = verdicts[0].per if verdicts else "step"
    for name in signal_words.in_order(name for verdict in verdicts for name in verdict.signals):
        seen = [verdict.signals[name] for verdict in verdicts if name in verdict.signals]
        worst = min(seen, key=_rank)
        figures = [(signal_words.figure_of(name, one)[0], one.signals.get(name)) for one in verdicts]
        known = [value for value, _ in figures if value is not None]
        bad = [value for value, signal in figures if value is not None and signal is not None and signal.seen == "bad"]
        ends = [known[0] if known else None, known[-1] if len(known) > 1 else None]
        worst_of = min if signal_words.shown_signal(name).falls else max
        ends.append(worst_of(bad) if bad else None)
        like = amounts.middle(ends[:2])
        visible = [value for one in verdicts if (value := one.of(name).visible) is not None]
        tone = signal_words.TONES[worst.seen]
        rows.append(
            (
                signal_words.shown_signal(name).title,
                Box(text=f"{signal_words.MARKS[tone]} {signal_words.state_word(worst.seen)}", tone=tone),
                *(signal_words.value_text(name, value, like=like, per=per) for value in ends),
                signal_words.limit_text(name, next((each.limit for each in seen if each.limit is not None), None), per),
                signal_words.visible_text(name, max(visible, default=None), per, value=max(known, default=None))
                if worst.seen != "none"
                else "",
                signal_words.reason(worst),
            )
        )
    return TextTable(columns=_SIGNAL_COLUMNS, rows=tuple(rows), ends_in_text=True, style="evidence") if rows else None
