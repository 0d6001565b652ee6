"""Makes one box per fault, worst first: everything a reader needs to know about it, as data for every report.

A fault is a set of findings, merged over variants and lanes. Its consequences are listed in its box and have none of
their own.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness import amounts
from harness.model import Attribution, CellResult, Episode, Finding, Observation, RunResult, gist
from harness.model.attributed import bounds_of, sign_of
from harness.model.judged import State
from harness.model.signals import SIGNALS, signal_of, unit_per
from harness.report.blocks import Figure, Point
from harness.report.text import fault_sentences, finding_words, signal_words
from harness.report.text.fault_causes import whose_fault
from harness.report.text.harmless_text import plain, shortened
from harness.report.text.names import at_most, params_text, place_of, place_of_cell, side_of, some_of, together
from harness.report.text.signal_words import WHY_LENGTH, Tone

_TONES: Mapping[State, Tone] = {True: "bad", False: "good", None: "unsure"}
_MOST_BRIEF = 93
"""Most characters of the figures and the evidence of a finding that fit on a line of 100 with its number."""
_LEAST_PART, _LEAST_PART_S = 0.1, 0.01
"""Least part of a change of the run time that is named, as a share of it and in seconds."""
_MOST_REASONS, _REASON_LENGTH, _MOST_OBSERVED = 4, 120, 5
"""Most reasons that are quoted for one failure of several variants, most characters of each, most observations."""


@dataclass(frozen=True, kw_only=True)
class FindingBox:
    """The texts of one fault. `number` is its number for `harness issue`, `findings` the numbers of all its findings.
    `brief` has the figures and the evidence in one line.

    `sentence` states what is wrong, how much, since when, where and with which params. `texts` maps labels to what is
    known besides: the figures of both sides in the row with the largest effect, or for a failure, how the launches
    ended; the evidence, summed over all rows; params, whose fault it is, layer, consequences, and what is new in the
    bad version. `commands` are the next steps, quoted for a shell, the most useful first.
    """

    attribution: Attribution
    number: int
    findings: tuple[int, ...]
    sentence: str
    brief: str
    texts: Mapping[str, str]
    figure: Figure
    commands: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """Return the box as plain text: the sentence, then a line for each text, then the next step."""
        return [self.sentence, *(f"{name}: {text}" for name, text in self.texts.items()), f"next: {self.commands[0]}"]


def boxes(result: RunResult) -> tuple[FindingBox, ...]:
    """Return the boxes of a run, worst fault first."""
    numbers = {finding: number for number, finding in enumerate(fault_sentences.numbered(result), start=1)}
    cells = {place_of_cell(entry.cell): entry for entry in result.cells}
    return tuple(_Box(result, numbers, cells, of).made() for of in fault_sentences.worst_first(result))


def observation_text(observation: Observation) -> str:
    """Return `log: Could not …`; the text about a number of the scenario begins with its name: `loss 0.3 → 0.4`."""
    text, signal = shortened(observation.text, most=200), signal_words.shown_signal(observation.signal)
    return text if signal.kind == "value" else f"{signal.title}: {text}"


@dataclass(frozen=True)
class _Box:
    """Makes the box of the attribution `of`. `numbers` are the findings' numbers; `cells` are by `place_of_cell`."""

    result: RunResult
    numbers: Mapping[Finding, int]
    cells: Mapping[tuple[str, str, str, str], CellResult]
    of: Attribution

    def made(self) -> FindingBox:
        telling = fault_sentences.telling_of(self.of)
        (bad, good), number = _sides(telling), self.numbers[telling.finding]
        figure, doubt, rule = self._figure(telling), self._doubt(), self.of.rule
        failed = self.of.metric == "outcome"
        params = "no simple rule separates bad from good" if self.of.unruly and rule is None else ""
        if rule is not None:
            params = f"{fault_sentences.rule_text(rule) or 'all'}; {fault_sentences.rule_evidence(rule)}"
        commands = [shlex.join(["harness", "issue", str(self.result.directory), str(number)])]
        if self.of.cause == "undecided" and self.of.missing:
            commands.insert(0, shlex.join(["harness", "sweep", str(self.result.plan.matrix.path), "--decide"]))
        evidence, said = self._evidence(), next(map(_said, self._entries([(telling, bad)])), "") if failed else ""
        texts = {
            "figures": "" if failed or self._has_modes else _change(figure, good, bad, telling),
            "output": self._says(telling) if failed else "",
            "run": self._run(telling),
            "consequences": "; ".join(self._consequences()),
            "evidence": f"{evidence}; {f'provisional: {doubt}' if doubt else 'confirmed'}",
            "params": params,
            "whose fault": whose_fault(self.of, self.result, before=good, after=bad),
            "layer": plain(self.of.layer or ""),
            "also new": "; ".join(self._observed()),
        }
        shown = texts["figures"] or ("" if failed else figure.title)
        if len(shown) + len(evidence) > _MOST_BRIEF and texts["figures"]:
            shown = _change(figure, good, bad, telling, is_brief=True)
        return FindingBox(
            attribution=self.of,
            number=number,
            findings=tuple(sorted({self.numbers[finding] for finding in self._findings()})),
            brief="; ".join(filter(None, (shown, said, doubt and "provisional", evidence))),
            sentence=f"{fault_sentences.clause(self.of, self.result)}.",
            texts={name: text for name, text in texts.items() if text},
            figure=figure,
            commands=tuple(commands),
        )

    def _findings(self) -> list[Finding]:
        return [finding for episode in self.of.episodes for finding in episode.findings]

    def _figure(self, episode: Episode) -> Figure:
        """Return an episode's figure for its series, lane and variant. Tones show only the state of its metric."""
        finding, place = episode.finding, place_of(episode.finding)[:3]
        row = next(row for row in self.result.plan.rows if place_of_cell(row.cells[0])[:3] == place)
        own = episode.span
        drifts, points, per = finding.verdict == "slowdown", [], fault_sentences.per_of(self.of, self.result)
        for number, (cell, told) in enumerate(zip(row.cells, episode.states, strict=True)):
            entry = self.cells.get(place_of_cell(cell))
            value, interval, state = None, None, told
            if entry is not None and drifts:
                value = entry.verdict.drift
            elif entry is not None:
                value, interval = signal_words.figure_of(finding.metric, entry.verdict)
                state = None if signal_words.is_uncompared(finding.metric, entry.verdict) else told
            low, high = interval or (None, None)
            is_memory = entry is not None and finding.metric == "memory"
            points.append(
                Point(
                    version=cell.image.version,
                    value=value,
                    low=low,
                    high=high,
                    tone="none" if value is None and not state else _TONES[state],
                    own=state is True and number in own,
                    most=entry.verdict.of("memory").visible if is_memory and entry is not None else None,
                )
            )
        signal = signal_of(finding.metric)
        title = "rise of the step time within a launch" if drifts else plain(signal.title)
        return Figure(title=title, unit="rise" if drifts else unit_per(signal, per), points=tuple(points))

    # ------------------------------------------------------------ evidence

    def _evidence(self) -> str:
        """Return `6 launches, 5 of which agree, against 6`, or `2 of 3 launches failed, before 0 of 3`, with the
        p-value, summed over all lanes and variants.
        """
        sides = ([(each, name) for each in self.of.episodes if (name := _sides(each)[side])] for side in (0, 1))
        bad, good = map(self._entries, sides)
        is_failure = self.of.metric == "outcome"
        hits, before = (sum(entry.verdict.failed for entry in side) for side in (bad, good))
        trials, others = (sum(entry.verdict.able(self.of.metric) for entry in side) for side in (bad, good))
        if self._has_modes:
            (hits, trials), (before, others) = map(fault_sentences.slow_launches, (bad, good))
        launches, chance = amounts.count(trials, "launch"), self._chance()
        if is_failure or self._has_modes:
            what = "were slow" if self._has_modes else "failed"
            short = sum(entry.verdict.too_short for entry in bad) if is_failure else 0
            more = f" ({short:,} more ended too soon to show it)" if short else ""
            return f"{hits:,} of {launches} {what}{more}{f', before {before:,} of {others:,}' if good else ''}{chance}"
        agreeing = sum(entry.verdict.agreeing for entry in bad)
        own = "leak" if self.of.metric == "memory" else "growth"
        judged = signal_of(self.of.metric).kind == "growth" and all(entry.verdict.verdict == own for entry in bad)
        is_split = judged and not chance and 0 < agreeing < trials
        agreed = f", {agreeing:,} of which agree{',' if good else ''}" if is_split else ""
        return f"{launches}{agreed}{f' against {others:,}' if good else ''}{chance}"

    @property
    def _has_modes(self) -> bool:
        return self.of.episodes[0].finding.verdict == "two modes"

    def _entries(self, side: Sequence[tuple[Episode, str]]) -> list[CellResult]:
        places = [side_of(episode.finding, name) for episode, name in side]
        return [self.cells[place] for place in places if place in self.cells]

    def _chance(self) -> str:
        """Return the largest p-value of all rows. The launches are summed over the rows, but each row is tested by
        itself, so the largest p-value holds for all.
        """
        known = [episode.finding.p for episode in self.of.episodes if episode.finding.p is not None]
        if len(known) < 2:
            return f"; {amounts.probability(known[0])}" if known else ""
        where = "in each variant" if len(self.of.variants) == len(self.of.episodes) else "at each place"
        return f"; {amounts.probability(max(known)).replace('=', '≤')} {where}"

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

    def _run(self, telling: Episode) -> str:
        """Return `run time 1.59 → 1.99 s; of that, steps +0.4 s`: how long the program takes, with the parts that a
        change of its time consists of; "" if the fault does not change it, or if it does not end by itself.
        """
        is_time = signal_of(self.of.metric).group in ("step time", "start-up")
        explains = is_time or bool(fault_sentences.run_clause(self.of, self.result))
        sides = [self._entries([(telling, name)]) for name in reversed(_sides(telling)) if name]
        if not explains or len(sides) < 2 or not all(sides):
            return ""
        old, new = (side[0].verdict for side in sides)
        before, after = old.of("run_time").value, new.of("run_time").value
        if before is None or after is None or not all(one.of("step_time").value for one in (old, new)):
            return ""
        steps = min(old.steps, new.steps)
        counts = {signal.name: 1 if signal.spent == "once" else steps for signal in SIGNALS.values() if signal.spent}
        parts = [
            (count * (more - less), "steps" if name == "step_time" else signal_words.short(name, new.of(name))[0])
            for name, count in counts.items()
            if (less := old.of(name).value) is not None and (more := new.of(name).value) is not None
        ]
        least = max(_LEAST_PART_S, _LEAST_PART * abs(after - before))
        told = [
            f"{name} {'+' if part_s > 0 else '-'}{amounts.in_unit(abs(part_s), 's')}"
            for part_s, name in sorted(parts, reverse=True)
            if (part_s if after > before else -part_s) >= least
        ]
        like = amounts.middle([before, after])
        text, end = (amounts.in_unit(value, "s", like=like) for value in (before, after))
        is_noisy = new.of("run_time").seen == "blind"
        sure = ", which is within its noise" if is_noisy else ""
        return f"{amounts.without_unit(text, end)} → {end}{sure}{f'; {together(told)}' if told else ''}"

    def _says(self, telling: Episode) -> str:
        """Return the reason for the failure: `crash in 3 of 3 launches: … exit code 7`. If the fault has several
        variants, return each reason once: `with a=1, crash: … exit code 7; with a=2 and a=3, hang: …`.
        """
        if len(self.of.variants) < 2:
            entries = self._entries([(telling, _sides(telling)[0])])
            return shortened(entries[0].verdict.why, most=WHY_LENGTH) if entries else ""
        found: dict[str, dict[str, None]] = {}
        first = sorted(self.of.episodes, key=lambda episode: episode is not telling)
        for entry in self._entries([(episode, _sides(episode)[0]) for episode in first]):
            why = ": ".join(filter(None, (entry.verdict.verdict, _said(entry))))
            found.setdefault(shortened(why, most=_REASON_LENGTH), {})[params_text(entry.cell.variant)] = None
        told = [f"with {some_of(list(names), 3)}, {why}" for why, names in found.items()]
        return "; ".join(at_most(told, _MOST_REASONS, rest="and {} more reasons"))

    # ------------------------------------------------------------ with which params, and what follows

    def _consequences(self) -> Iterator[str]:
        """Yield `step time 1.7 times` for each consequence, with the number of variants if only some show it."""
        found: dict[str, list[Finding]] = {}
        for finding in self.result.findings:
            if finding.consequence_of == self.of.metric and finding.kind != "first_fixed" and self._explains(finding):
                found.setdefault(sign_of(finding), []).append(finding)
        for ones in found.values():
            size = fault_sentences.sizes(
                [finding.effect for finding in ones if finding.effect is not None],
                metric=ones[0].metric,
            )
            some, many = len({finding.variant for finding in ones}), len(self.of.variants)
            share = f" (in {some} of {many} variants)" if some < many else ""
            yield f"{f'{plain(signal_of(ones[0].metric).title)} {size}'.rstrip()}{share}"

    def _explains(self, finding: Finding) -> bool:
        if finding.series != self.of.series:
            return False
        order = fault_sentences.order_of(self.of, self.result)
        last, first = bounds_of(finding, order)
        return any(
            place_of(episode.finding)[:3] == place_of(finding)[:3]
            and episode.since is not None
            and max(last, episode.since[0]) < min(first, episode.since[1])
            for episode in self.of.episodes
        )

    def _observed(self) -> list[str]:
        """Return the observations at the first bad version of these findings: `log: Could not load libcudnn.so.#`."""
        begins = {side_of(finding, finding.after) for finding in self._findings() if finding.kind != "first_fixed"}
        told = dict.fromkeys(
            observation_text(each) for each in self.result.observations if side_of(each, each.after) in begins
        )
        return at_most(list(told), _MOST_OBSERVED)


def _sides(episode: Episode) -> tuple[str, str | None]:
    """Return the bad and the good version at the beginning of an episode, or at its end if no good one precedes it."""
    begins, ends = episode.begins, episode.ends
    if begins is not None and (begins.before is not None or ends is None):
        return begins.after, begins.before
    assert ends is not None, "an episode has a begin or an end"
    return ends.before or ends.after, ends.after


def _change(figure: Figure, old: str | None, new: str, episode: Episode, *, is_brief: bool = False) -> str:
    """Return `memory at most 0.017 → 7.84 (7.83 to 7.85) KiB/step`, and for a ratio the finding's own size, which
    compares all versions before and after it; "" if the new side has no figure. `is_brief`: if that size has an
    interval, the new side has none.
    """
    points = {point.version: point for point in figure.points}
    after, before = points[new], points.get(old or "")
    symptom = finding_words.SYMPTOMS.get(episode.finding.verdict)
    if symptom is not None and symptom.shows:
        effect = f"; {amounts.effect(size)}" if (size := fault_sentences.size_of(episode)) is not None else ""
        return f"{figure.title}{symptom.shows}{effect}"
    if after.value is None or math.isnan(after.value):
        return ""
    is_bound = before is not None and before.most is not None and before.tone == "good"
    side = None if before is None else before.most if is_bound else before.value
    like, digits = amounts.middle([after.value, side]), amounts.digits_apart(after.value, side)
    unit = figure.unit if figure.unit != "rise" else ""
    scale = 100 if figure.unit == "rise" else 1
    text, *rest = (
        "" if value is None else amounts.in_unit(scale * value, unit, like=like, digits=digits)
        for value in (after.value, side, after.low, after.high)
    )
    older, low, high = (other.partition(" ")[0] for other in rest)
    told = f"{text} %" if figure.unit == "rise" else text
    begin = f"{'at most ' if is_bound else ''}{older or 'unknown'} → " if before is not None else ""
    size = fault_sentences.size_of(episode)
    is_told = is_brief and size is not None and size.ci is not None and size.unit == "ratio"
    interval = f" ({low} to {high})" if low and high and not is_told else ""
    ratio = f"; {amounts.effect(size)}" if size is not None and size.unit == "ratio" and figure.unit != "rise" else ""
    return f"{figure.title} {begin}{amounts.before_unit(told, interval)}{ratio}"


def _said(entry: CellResult) -> str:
    """Return the gist of the failure message of a cell's longest failed launch; "" if none failed or said anything."""
    failed = [trial for trial in entry.trials if trial.measured and not trial.ended_well]
    return gist(max(failed, key=lambda trial: trial.last_step).message) if failed else ""
