"""Makes one box per fault, worst first: everything a reader needs to know about it, as data for every report.

A fault is a set of findings, merged over variants and lanes. Its consequences are listed in its box and have none of
their own.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness import amounts
from harness.model import GOOD, Attribution, CellResult, Episode, Finding, Observation, RunResult
from harness.model.attributed import bounds_of, sign_of
from harness.model.from_file import grouped, written
from harness.model.judged import Effect, Interval
from harness.model.signals import SIGNALS, signal_of, unit_per
from harness.report.text import fault_sentences, finding_words, signal_words
from harness.report.text.fault_causes import LaneNames, whose_fault
from harness.report.text.harmless_text import plain, shortened, version
from harness.report.text.names import CellKey, at_most, cell_key, params_text, row_key, side_of, some_of, together
from harness.report.text.signal_words import WHY_LENGTH

_MOST_BRIEF = 93
"""Most characters of the figures and the evidence of a finding that fit on a line of 100 with its number."""
_LEAST_PART, _LEAST_PART_S = 0.1, 0.01
"""Least part of a change of the run time that is named, as a share of it and in seconds."""
_ALIKE = 0.05
"""Share by which times differ that count as about the same."""
_MOST_REASONS, _REASON_LENGTH, _MOST_OBSERVED, _MOST_CURES = 4, 120, 5, 3
"""Most reasons that are quoted for one failure of several variants, most characters of each, most observations."""


def boxes(result: RunResult) -> tuple[FindingBox, ...]:
    """Return the boxes of a run, worst fault first."""
    numbers = {finding: number for number, finding in enumerate(fault_sentences.numbered(result), start=1)}
    cells = {cell_key(entry.cell): entry for entry in result.cells}
    worst_first = fault_sentences.worst_first(result)
    return tuple(FindingBox(result=result, fault=each, numbers=numbers, cells=cells) for each in worst_first)


def observation_text(observation: Observation) -> str:
    """Return `log: Could not …`; the text about a number of the scenario begins with its name: `loss 0.3 → 0.4`."""
    text, signal = shortened(observation.text, most=200), signal_words.shown_signal(observation.signal)
    return text if signal.kind == "value" else f"{signal.title}: {text}"


@dataclass(frozen=True, kw_only=True)
class FindingBox:
    """One fault, with what reports say of it. `numbers` are the findings' numbers; `cells` are by `cell_key`."""

    result: RunResult
    fault: Attribution
    numbers: Mapping[Finding, int]
    cells: Mapping[CellKey, CellResult]

    @cached_property
    def telling(self) -> Episode:
        """Return the episode with the largest effect, whose figures are told."""
        return fault_sentences.telling_of(self.fault)

    @property
    def number(self) -> int:
        """Return the number of the fault for `harness issue`."""
        return self.numbers[self.telling.finding]

    @property
    def row(self) -> list[CellResult]:
        """Return the cells of the row with the largest effect, oldest version first."""
        own = row_key(self.telling.finding)
        return [entry for (row, _), entry in self.cells.items() if row == own]

    @cached_property
    def sentence(self) -> str:
        """Return what is wrong, how much, since when, where and with which params."""
        return f"{fault_sentences.clause(self.fault, self.result)}."

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """Return what is known besides, by its label: the figures of both sides in the row with the largest effect, or
        for a failure, how the launches ended; the evidence, summed over all rows; params, whose fault it is, layer,
        consequences, and what is new in the bad version.
        """
        fault, doubt = self.fault, self._doubt()
        bad, good = _sides(self.telling)
        params = "no simple rule separates bad from good" if fault.unruly and fault.rule is None else ""
        if fault.rule is not None:
            params = f"{fault_sentences.rule_text(fault.rule) or 'all'}; {fault_sentences.rule_evidence(fault.rule)}"
        texts = {
            "figures": self._change(),
            "output": self._says() if self._is_failure else "",
            "run": self._run(),
            "consequences": "; ".join(self._consequences()),
            "evidence": f"{self._evidence()}; {f'provisional: {doubt}' if doubt else 'confirmed'}",
            "params": params,
            "cache": self._cache() if fault_sentences.is_warm(fault, self.result) else "",
            "cure": "; ".join(at_most(list(self._cures()), _MOST_CURES)),
            "whose fault": whose_fault(fault, self.result, before=good, after=bad),
            "layer": plain(fault.layer or ""),
            "also new": "; ".join(self._observed()),
        }
        return {name: text for name, text in texts.items() if text}

    def _cache(self) -> str:
        """Return how the warm cache was filled, which for a failure shows that a cold one does no harm."""
        filled = "filled by one launch of the version, which began with an empty one and is not counted"
        return f"{filled}; that launch ended well" if self._is_failure else filled

    @property
    def brief(self) -> str:
        """Return the figures and the evidence in one line."""
        evidence, said = self._evidence(), ""
        shown = self.texts.get("figures", "" if self._is_failure else self._title)
        if len(shown) + len(evidence) > _MOST_BRIEF and "figures" in self.texts:
            shown = self._change(is_brief=True)
        if self._is_failure:
            every = [self.telling, *self.fault.episodes]
            own = list(map(_said, self._entries([(episode, _sides(episode)[0]) for episode in every])))
            others = len({re.sub(r"\d+", "#", each) for each in own if each}) - 1
            said = next(filter(None, own), "")
            said += f" (and in {amounts.count(others, 'other way')})" if others > 0 else ""
        return "; ".join(filter(None, (shown, said, self._doubt() and "provisional", evidence)))

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the next steps, quoted for a shell, the most useful first."""
        commands = [shlex.join(["harness", "issue", str(self.result.directory), str(self.number)])]
        if self.fault.missing:
            options = LaneNames(self.fault, self.result).options(self.fault)
            commands.insert(0, shlex.join(["harness", "sweep", str(self.result.plan.matrix.path), *options]))
        return tuple(commands)

    @property
    def lines(self) -> list[str]:
        """Return the box as plain text: the sentence, then a line for each text, then the next step."""
        return [self.sentence, *(f"{name}: {text}" for name, text in self.texts.items()), f"next: {self.commands[0]}"]

    def _findings(self) -> list[Finding]:
        return [finding for episode in self.fault.episodes for finding in episode.findings]

    # ------------------------------------------------------------ figures

    @property
    def _is_failure(self) -> bool:
        return self.fault.metric == "outcome"

    @property
    def _drifts(self) -> bool:
        return self.telling.finding.verdict == "slowdown"

    @property
    def _title(self) -> str:
        title = signal_of(self.fault.metric).title
        return "rise of the step time within a launch" if self._drifts else plain(title)

    def _figure(self, version: str | None) -> tuple[float | None, Interval | None]:
        """Return the figure of a version in the row with the largest effect, with its interval."""
        entry = self.cells.get(side_of(self.telling.finding, version))
        if entry is None or self._drifts:
            return (None if entry is None else entry.verdict.drift), None
        return signal_words.figure_beside(self.fault.metric, entry.verdict)

    def _bound(self, version: str | None) -> float | None:
        """Return the smallest leak that a good version rules out; None for any other version, and any other fault."""
        order = fault_sentences.order_of(self.fault, self.result)
        entry = self.cells.get(side_of(self.telling.finding, version))
        if entry is None or self.fault.metric != "memory" or self._figure(version)[0] is None:
            return None
        is_good = self.telling.states[order[version or ""]] is False
        return entry.verdict.of("memory").visible if is_good else None

    def _change(self, *, is_brief: bool = False) -> str:
        """Return `memory at most 0.017 → 7.84 (7.83 to 7.85) KiB/step`, and for a ratio the finding's own size, which
        compares all versions before and after it; "" if the new side has no figure. `is_brief`: if that size has an
        interval, the new side has none.
        """
        if self._is_failure or self._has_modes:
            return ""
        new, old = _sides(self.telling)
        size = fault_sentences.size_of(self.telling)
        symptom = finding_words.SYMPTOMS.get(self.telling.finding.verdict)
        if symptom is not None and symptom.shows:
            return f"{self._title}{symptom.shows}{'' if size is None else f'; {amounts.effect(size)}'}"
        value, interval = self._figure(new)
        if value is None or math.isnan(value):
            return ""
        bound = self._bound(old)
        side = self._figure(old)[0] if bound is None else bound
        like, digits = amounts.middle([value, side]), amounts.digits_apart(value, side)
        per = fault_sentences.per_of(self.fault, self.result)
        unit, scale = ("", 100) if self._drifts else (unit_per(signal_of(self.fault.metric), per), 1)
        text, *rest = (
            "" if each is None else amounts.in_unit(scale * each, unit, like=like, digits=digits)
            for each in (value, side, *(interval or (None, None)))
        )
        older, low, high = (other.partition(" ")[0] for other in rest)
        told = f"{text} %" if self._drifts else text
        begin = "" if old is None else f"{'' if bound is None else 'at most '}{older or 'unknown'} → "
        is_told = is_brief and size is not None and size.ci is not None and size.unit == "ratio"
        around = f" ({low} to {high})" if low and high and value and not is_told else ""
        is_pooled = len(self.row) > 2
        ratio = "" if size is None or self._drifts else _ratio_text(size, value, side, is_pooled=is_pooled)
        return f"{self._title} {begin}{amounts.before_unit(told, around)}{ratio}"

    # ------------------------------------------------------------ evidence

    def _evidence(self) -> str:
        """Return `6 launches, 5 of which agree, against 6`, or `2 of 3 launches failed, before 0 of 3`, with the
        p-value, summed over all lanes and variants.
        """
        sides = ([(each, name) for each in self.fault.episodes if (name := _sides(each)[side])] for side in (0, 1))
        bad, good = map(self._entries, sides)
        hits, before = (sum(entry.verdict.failed for entry in side) for side in (bad, good))
        trials, others = (sum(entry.verdict.able(self.fault.metric) for entry in side) for side in (bad, good))
        if self._has_modes:
            (hits, trials), (before, others) = map(fault_sentences.slow_launches, (bad, good))
        launches, chance = amounts.count(trials, "launch"), self._chance()
        if self._is_failure or self._has_modes:
            what = "were slow" if self._has_modes else "failed"
            short = sum(entry.verdict.too_short for entry in bad) if self._is_failure else 0
            more = f" ({short:,} more ended too soon to show it)" if short else ""
            return f"{hits:,} of {launches} {what}{more}{f', before {before:,} of {others:,}' if good else ''}{chance}"
        agreeing = sum(entry.verdict.agreeing for entry in bad)
        own = "leak" if self.fault.metric == "memory" else "growth"
        judged = signal_of(self.fault.metric).kind == "growth" and all(entry.verdict.verdict == own for entry in bad)
        is_split = judged and not chance and 0 < agreeing < trials
        agreed = f", {agreeing:,} of which agree{',' if good else ''}" if is_split else ""
        return f"{launches}{agreed}{f' against {others:,}' if good else ''}{chance}"

    @property
    def _has_modes(self) -> bool:
        return self.fault.episodes[0].finding.verdict == "two modes"

    def _entries(self, side: Sequence[tuple[Episode, str]]) -> list[CellResult]:
        places = [side_of(episode.finding, name) for episode, name in side]
        return [self.cells[place] for place in places if place in self.cells]

    def _chance(self) -> str:
        """Return the largest p-value of all rows. The launches are summed over the rows, but each row is tested by
        itself, so the largest p-value holds for all.
        """
        known = [episode.finding.p for episode in self.fault.episodes if episode.finding.p is not None]
        if len(known) < 2:
            return f"; {amounts.probability(known[0])}" if known else ""
        where = "in each variant" if len(self.fault.variants) == len(self.fault.episodes) else "at each place"
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

    def _run(self) -> str:
        """Return `run time 1.59 → 1.99 s; of that, steps +0.4 s`: how long the program takes, with the parts that a
        change of its time consists of; "" if the fault does not change it, or if it does not end by itself.
        """
        is_time = signal_of(self.fault.metric).group in ("step time", "start-up")
        explains = is_time or bool(fault_sentences.size_of_result("run_time", self.fault, self.result))
        sides = [self._entries([(self.telling, name)]) for name in reversed(_sides(self.telling)) if name]
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
        is_noisy = new.of("run_time").seen == "blind"
        sure = ", which is within its noise" if is_noisy else ""
        return f"{signal_words.values_text('run_time', before, after)}{sure}{f'; {together(told)}' if told else ''}"

    def _says(self) -> str:
        """Return the reason for the failure: `crash in 3 of 3 launches: … exit code 7`. If the fault has several
        variants, return each reason once: `with a=1, crash: … exit code 7; with a=2 and a=3, hang: …`.
        """
        if len(self.fault.variants) < 2:
            entries = self._entries([(self.telling, _sides(self.telling)[0])])
            return shortened(entries[0].verdict.why, most=WHY_LENGTH) if entries else ""
        found: dict[str, dict[str, None]] = {}
        first = sorted(self.fault.episodes, key=lambda episode: episode is not self.telling)
        for entry in self._entries([(episode, _sides(episode)[0]) for episode in first]):
            why = ": ".join(filter(None, (entry.verdict.verdict, _said(entry))))
            found.setdefault(shortened(why, most=_REASON_LENGTH), {})[params_text(entry.cell.variant)] = None
        told = [f"with {some_of(list(names), 3)}, {why}" for why, names in found.items()]
        return "; ".join(at_most(told, _MOST_REASONS, rest="and {} more reasons"))

    # ------------------------------------------------------------ with which params, and what follows

    def _consequences(self) -> Iterator[str]:
        """Yield `step time 1.7 times` for each consequence, with the number of variants if only some show it."""
        caused = (finding for finding in self.result.findings if finding.consequence_of == self.fault.metric)
        for ones in grouped((sign_of(finding), finding) for finding in caused if self._explains(finding)).values():
            effects = [finding.effect for finding in ones if finding.effect is not None]
            size = fault_sentences.sizes(effects, metric=ones[0].metric)
            some, many = len({finding.variant for finding in ones}), len(self.fault.variants)
            share = f" (in {some} of {many} variants)" if some < many else ""
            yield f"{f'{plain(signal_of(ones[0].metric).title)} {size}'.rstrip()}{share}"

    def _cures(self) -> Iterator[str]:
        """Yield `with fast=0 it is good, and takes about 32 % longer than with fast=1 in 2 (run time 1.6 → 2.1 s)`
        for each variant that is good in the bad version and differs from the bad one in a single variable of the
        environment: other params may choose other work. Such times are not compared in the same rounds, so no interval
        is told.
        """
        finding, (bad, good) = self.telling.finding, _sides(self.telling)
        if self.fault.rule is None or not self.fault.rule.conditions:
            return
        before, settings = self.cells.get(side_of(finding, good)), dict(finding.variant.scenario.environment).values()
        for where, entry in self.cells.items():
            variant, verdict = entry.cell.variant, entry.verdict
            others = [pair for pair in variant.params if pair not in finding.variant.params]
            is_there = where == side_of(replace(finding, variant=variant), bad)
            is_good = verdict.verdict in GOOD and verdict.of(self.fault.metric).seen not in ("bad", "suspect")
            is_near = len(others) == 1 and any(f"{{{others[0][0]}}}" in text for text in settings)
            if is_there and is_good and is_near and variant.scenario == finding.variant.scenario:
                own = [(name, value) for name, value in finding.variant.params if name == others[0][0]]
                with_it, without = (plain(f"{name}={written(value)}") for name, value in (*others, *own))
                price = "" if before is None else _price(before, entry, f"{without} in {version(good or '')}")
                yield f"with {with_it} it is good{price}"

    def _explains(self, finding: Finding) -> bool:
        if finding.series != self.fault.series or finding.kind == "first_fixed":
            return False
        order = fault_sentences.order_of(self.fault, self.result)
        last, first = bounds_of(finding, order)
        return any(
            row_key(episode.finding) == row_key(finding)
            and episode.since is not None
            and max(last, episode.since[0]) < min(first, episode.since[1])
            for episode in self.fault.episodes
        )

    def _observed(self) -> list[str]:
        """Return the observations at the first bad version of these findings: `log: Could not load libcudnn.so.8`."""
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


def _ratio_text(size: Effect, new: float, old: float | None, *, is_pooled: bool) -> str:
    """Return `; +12.3 (11 to 13.5) %`. If it `is_pooled`, a size compares all versions before a change with all since:
    where the figures of the two versions beside it, which are `old` and `new`, have another ratio, return `; +65.7 %
    over all versions before and since`. Return "" if the size is no ratio.
    """
    if size.unit != "ratio":
        return ""
    low, high = size.ci or (size.value * (1 - _ALIKE), size.value * (1 + _ALIKE))
    explains = not is_pooled or not old or low <= new / old <= high
    return f"; {amounts.effect(size)}{'' if explains else ' over all versions before and since'}"


def _price(before: CellResult, cured: CellResult, what: str) -> str:
    """Return `, and takes about 32 % longer than with {what} (run time 1.59 → 2.11 s)`; "" if the times are unknown. If
    the intervals of two different times overlap, it may take as long.
    """
    for name in ("step_time", "run_time"):
        sides = [entry.verdict.of(name) for entry in (before, cured)]
        old, new = (side.value for side in sides)
        if old and new and math.isfinite(old) and math.isfinite(new):
            share = abs(new / old - 1)
            lows, highs = zip(*(side.ci or (side.value, side.value) for side in sides), strict=True)
            more = "longer than" if new > old else "less time than"
            told = f"takes about {amounts.number(100 * share, digits=2)} % {more}"
            if share < _ALIKE:
                told = "takes about as long as"
            elif max(lows) <= min(highs):
                told = "may take as long as"
            times = signal_words.values_text(name, old, new, per=cured.verdict.per)
            return f", and {told} with {what} ({signal_of(name).title} {times})"
    return ""


def _said(entry: CellResult) -> str:
    """Return the gist of the failure message of a cell's longest failed launch; "" if none failed or said anything."""
    failed = [trial for trial in entry.trials if trial.measured and not trial.ended_well]
    return max(failed, key=lambda trial: trial.last_step).gist if failed else ""
