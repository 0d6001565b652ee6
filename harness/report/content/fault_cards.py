"""Makes one card per fault, worst first: everything a reader needs to know about the fault, as data for every report.

A fault is a set of findings, merged over variants and lanes. Its consequences are listed on its card and have no card
of their own.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.model import Attribution, CellResult, Episode, Finding, Install, RunResult, gist, signal_of
from harness.model.episodes import bounds_of, met, sign_of
from harness.report.bad_ranges import place_of, place_of_cell, side_of
from harness.report.content.card_figure import Figure, change_text, figure_of
from harness.report.text import finding_words, words
from harness.report.text import numbers as figures
from harness.report.text.faults import blame, fault, finding_phrases
from harness.report.text.faults.param_rule import evidence, rule_text
from harness.report.text.harmless_text import plain, shortened

_MOST_REASONS, _REASON_LENGTH = 4, 120
"""Most reasons that are quoted for one failure if its variants differ (the rest are counted), and most characters of
each."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """The texts of one card; a text that does not apply is "".

    `number` is the finding's number for `harness issue`, `findings` the numbers of all findings on the card. `sentence`
    states what is wrong, how much, since when, where and with which params. `change` compares the figures of both sides
    in the row with the largest effect; a failure has `says` instead: how the launches of the bad version ended.
    `rests_on` counts the launches of both sides in all rows. `commands` are the next steps, quoted for a shell, the
    most useful first.
    """

    attribution: Attribution
    number: int
    findings: tuple[int, ...]
    sentence: str
    change: str
    says: str
    rests_on: str
    params: str
    fault: str
    layer: str
    consequences: tuple[str, ...]
    figure: Figure
    commands: tuple[str, ...]


def cards(result: RunResult) -> tuple[Card, ...]:
    """Return the cards of a run, worst fault first."""
    numbers = {finding: number for number, finding in enumerate(blame.numbered(result), start=1)}
    cells = {place_of_cell(entry.cell): entry for entry in result.cells}
    return tuple(
        _Maker(result=result, numbers=numbers, cells=cells, of=attribution).card()
        for attribution in blame.worst_first(result)
    )


def card_lines(card: Card) -> list[str]:
    """Return a card as plain text: the sentence, then a line for each text that is not empty."""
    rest = {
        "figures": card.change,
        "output": card.says,
        "consequences": ", ".join(card.consequences),
        "evidence": card.rests_on,
        "params": card.params,
        "whose fault": card.fault,
        "layer": card.layer,
        "next": card.commands[0],
    }
    return [card.sentence, *(f"{name}: {text}" for name, text in rest.items() if text)]


@dataclass(frozen=True, kw_only=True)
class _Maker:
    """Makes the card of the attribution `of`. `numbers` are the findings' numbers; `cells` are by `place_of_cell`."""

    result: RunResult
    numbers: dict[Finding, int]
    cells: dict[tuple[str, str, str, str], CellResult]
    of: Attribution

    def card(self) -> Card:
        telling = fault.telling_of(self.of)
        clause, figure = fault.clause_of(self.of, self.result), figure_of(telling, self.result)
        (bad, good), number = _sides(telling), self.numbers[telling.finding]
        doubt = self._doubt()
        return Card(
            attribution=self.of,
            number=number,
            findings=tuple(sorted({self.numbers[finding] for finding in self._findings()})),
            sentence=f"{fault.subject_of(self.of, self.result)} {clause.verb} {clause.when}{clause.tail}.",
            change="" if self.of.metric == "outcome" else change_text(figure, good, bad, size=fault.size_of(telling)),
            says=self._says(telling) if self.of.metric == "outcome" else "",
            rests_on=f"{self._launches()}; {f'provisional: {doubt}' if doubt else 'confirmed'}",
            params=self._params(),
            fault=self._fault(),
            layer=plain(self.of.layer or ""),
            consequences=tuple(self._consequences()),
            figure=figure,
            commands=tuple(self._commands(number)),
        )

    def _findings(self) -> list[Finding]:
        return [finding for episode in self.of.episodes for finding in episode.findings]

    # ------------------------------------------------------------ evidence

    def _launches(self) -> str:
        """Return `6 launches of 6.3.0, 5 of which agree, against 6 of 6.2.0`, summed over all lanes and variants."""
        bad = [(episode, _sides(episode)[0]) for episode in self.of.episodes]
        good = [(episode, name) for episode in self.of.episodes if (name := _sides(episode)[1]) is not None]
        if self.of.metric == "outcome":
            told = f"{self._failures(bad)} failed"
            return f"{told}, {self._failures(good)}{self._chance()}" if good else f"{told}{self._chance()}"
        launches = sum(entry.verdict.trials for entry in self._entries(bad))
        text = f"{figures.count(launches, 'launch')} of {_named(bad)}"
        chance = self._chance()
        agreement = "" if chance or launches < 2 else self._agreement(bad, launches)
        if good:
            others = sum(entry.verdict.trials for entry in self._entries(good))
            text += f"{agreement and f'{agreement},'} against {others:,} of {_named(good)}"
        return f"{text}{chance or ('' if good else agreement)}"

    def _agreement(self, bad: Sequence[tuple[Episode, str]], launches: int) -> str:
        """Return `, which agree` or `, 5 of which agree`: the evidence for growth that has no p-value."""
        agreeing = sum(entry.verdict.agreeing for entry in self._entries(bad)) if self.of.metric == "memory" else 0
        if agreeing == launches:
            return ", which agree"
        if agreeing:
            return f", {agreeing:,} of which agree"
        if not all(finding.confirmed for finding in self._findings()):
            return ""
        return ", which agree" if launches == 2 else ", at least two of which agree"

    def _says(self, telling: Episode) -> str:
        """Return each reason for the failure once, starting with the reason in `telling`.

        For example `crash in 3 of 3 trials: … exit code 7`, or, if the fault has several variants,
        `with a=1, crash: … exit code 7; with a=2 and a=3, hang: …`.
        """
        if len(self.of.variants) < 2:
            entries = self._entries([(telling, _sides(telling)[0])])
            return shortened(entries[0].verdict.why, most=words.WHY_LENGTH) if entries else ""
        found: dict[str, list[str]] = {}
        for episode in sorted(self.of.episodes, key=lambda episode: episode is not telling):
            for entry in self._entries([(episode, _sides(episode)[0])]):
                why = shortened(": ".join(filter(None, (entry.verdict.verdict, _said(entry)))), most=_REASON_LENGTH)
                found.setdefault(why, []).append(words.params_text(entry.cell.variant))
        told = [f"with {words.some_of(list(dict.fromkeys(names)), 3)}, {why}" for why, names in found.items()]
        return "; ".join(words.at_most(told, _MOST_REASONS, rest="and {} more reasons"))

    def _failures(self, side: Sequence[tuple[Episode, str]]) -> str:
        entries = self._entries(side)
        failed, trials = (sum(getattr(entry.verdict, name) for entry in entries) for name in ("failed", "trials"))
        return f"{failed:,} of {figures.count(trials, 'launch')} of {_named(side)}"

    def _entries(self, side: Sequence[tuple[Episode, str]]) -> list[CellResult]:
        places = [side_of(episode.finding, name) for episode, name in side]
        return [self.cells[place] for place in places if place in self.cells]

    def _chance(self) -> str:
        """Return the largest p-value of all rows. The launches are summed over the rows, but each row is tested by
        itself, so the largest p-value holds for all.
        """
        known = [episode.finding.p for episode in self.of.episodes if episode.finding.p is not None]
        if len(known) < 2:
            return f"; {figures.probability(known[0])}" if known else ""
        where = "in each variant" if len(self.of.variants) == len(self.of.episodes) else "at each place"
        return f"; {figures.probability(max(known)).replace('=', '≤')} {where}"

    def _doubt(self) -> str:
        """Return why the finding is provisional, or "" if it is confirmed."""
        found = self._findings()
        sides = [side_of(finding, name) for finding in found for name in (finding.before, finding.after)]
        if self.result.verdict in ("interrupted", "running"):
            return "the run was interrupted" if self.result.verdict == "interrupted" else "the run is not finished"
        if not all(finding.confirmed for finding in found):
            return finding_words.UNCONFIRMED
        early = any(self.cells[side].verdict.provisional for side in sides if side in self.cells)
        return "more launches were planned" if early else ""

    # ------------------------------------------------------------ whose fault, with which params, and what follows

    def _params(self) -> str:
        """Return the rule for the params and its evidence: `then = pop; 1 variant bad, 1 good`."""
        if self.of.rule is None:
            return "no simple rule separates bad from good" if self.of.unruly else ""
        return "; ".join(filter(None, (rule_text(self.of.rule) or "all", evidence(self.of.rule))))

    def _fault(self) -> str:
        told = blame.fault_text(self.of, self.result)
        if self.of.cause != "image":
            return told
        rows = self.result.plan.rows
        images = next(row.series.images for row in rows if row.series.name == self.of.series)
        installed = all(isinstance(image.source, Install) for image in images)
        return "; ".join(filter(None, ("the package's" if installed else "the image's", told)))

    def _consequences(self) -> Iterator[str]:
        """Yield `step time 1.7 times` for each consequence, with the number of variants if only some show it."""
        found: dict[str, list[Finding]] = {}
        for finding in self.result.findings:
            if finding.consequence_of == self.of.metric and finding.kind != "first_fixed" and self._explains(finding):
                found.setdefault(sign_of(finding), []).append(finding)
        for ones in found.values():
            size = finding_phrases.sizes([finding.effect for finding in ones if finding.effect is not None])
            title = plain(signal_of(ones[0].metric).title)
            some, many = len({finding.variant for finding in ones}), len(self.of.variants)
            share = f" (in {some} of {many} variants)" if some < many else ""
            yield f"{f'{title} {size}'.rstrip()}{share}"

    def _explains(self, finding: Finding) -> bool:
        if finding.series != self.of.series:
            return False
        order = fault.order_of(self.of, self.result)
        bounds = bounds_of(Episode(begins=finding, ends=None, seen=finding.after), order)
        return any(
            place_of(episode.finding)[:3] == place_of(finding)[:3]
            and episode.begins is not None
            and met((bounds_of(Episode(begins=episode.begins, ends=None, seen=episode.begins.after), order), bounds))
            for episode in self.of.episodes
        )

    def _commands(self, number: int) -> Iterator[str]:
        if self.of.cause == "undecided" and self.of.missing:
            yield shlex.join(["harness", "sweep", str(self.result.plan.matrix.path), "--decide"])
        yield shlex.join(["harness", "issue", str(self.result.directory), str(number)])


def _said(entry: CellResult) -> str:
    """Return the gist of the failure message of a cell's longest failed launch; "" if none failed or said anything."""
    failed = [trial for trial in entry.trials if trial.measured and not trial.ended_well]
    return gist(max(failed, key=lambda trial: trial.last_step).message) if failed else ""


def _sides(episode: Episode) -> tuple[str, str | None]:
    """Return the bad and the good version at the beginning of an episode, or at its end if no good one precedes it."""
    begins, ends = episode.begins, episode.ends
    if begins is not None and (begins.before is not None or ends is None):
        return begins.after, begins.before
    assert ends is not None, "an episode has a begin or an end"
    return ends.before or ends.after, ends.after


def _named(side: Sequence[tuple[Episode, str]]) -> str:
    return words.listing(list(dict.fromkeys(name for _, name in side)))
