"""The judge's results: verdicts on traces and cells, changes along a history, findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.model.asked import Lane
from harness.model.image import Scalar
from harness.model.planned import Cell
from harness.model.scenario import Variant

VerdictName = Literal[
    "leak", "growth", "slowdown", "nan", "oom", "crash", "hang", "plateau", "flat",
    "suspect", "inconclusive", "incompatible", "untested",
]  # fmt: skip
BAD: frozenset[str] = frozenset({"leak", "growth", "slowdown", "nan", "oom", "crash", "hang"})
FAILURES: frozenset[VerdictName] = frozenset({"oom", "crash", "hang"})
"""The verdicts on a launch that did not end well."""
GOOD: frozenset[str] = frozenset({"plateau", "flat"})
UNSURE: frozenset[str] = frozenset({"suspect", "inconclusive"})

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class TraceVerdict:
    """The verdict on one trace (`judge/trace/verdict.py`): what `harness judge` prints.

    `verdicts` lists all that apply, strongest first; `verdict` is the first of them. `steps` is the number of steps
    that it is based on: a flat trace is known to be flat only up to there. `early` marks `suspect (early)`.
    """

    verdict: VerdictName
    verdicts: tuple[VerdictName, ...]
    steps: int
    why: str
    rate_kib_per_step: float | None = None
    rate_ci: Interval | None = None
    excluded_kib_per_step: float | None = None
    plateau_mib: float | None = None
    step_ms: float | None = None
    step_drift: float | None = None
    peak_rss_mib: float | None = None
    layer: str | None = None
    early: bool = False
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


SignalState = Literal["good", "bad", "suspect", "blind", "none"]
"""State of a signal: within its limit (`good`), beyond it (`bad`), beyond it in one launch only (`suspect`);
`blind`: a change as large as the limit would not have shown; `none`: not applicable (no GPU, no earlier version, a
limit of `none`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalVerdict:
    """The verdict on one signal of a cell. `value` is its figure in the signal's unit, with its confidence interval;
    `limit` is what counts as bad; `visible` is the minimum detectable effect (a share for levels, an amount per step
    for growths); `why` is the reason of a blind signal, and the remedy."""

    seen: SignalState
    value: float | None = None
    ci: Interval | None = None
    limit: float | None = None
    visible: float | None = None
    why: str = ""


CellState = Literal["bad", "good", "unsure", "none"]
"""What a cell is over all its signals; `none`: nothing is known of the image."""


@dataclass(frozen=True, kw_only=True)
class CellVerdict:
    """The verdict on one cell, over its trials (`judge/cell/verdict.py`); an entry of `summary.json`'s `cells`.

    `step_ms` and `peak_rss_mib` are those of whole launches. `compared_*` are the figures that findings compare
    (`judge/comparison/compared.py`), from the steps and rounds that all versions of the block share; None if the cell
    was not compared.
    """

    verdict: VerdictName
    verdicts: tuple[VerdictName, ...]
    why: str
    trials: int = 0
    failed: int = 0
    signal: int | None = None
    steps: int = 0
    layer: str | None = None
    plateau_mib: float | None = None
    rate_kib_per_step: float | None = None
    rate_ci: Interval | None = None
    excluded_kib_per_step: float | None = None
    step_ms: float | None = None
    step_ms_ci: Interval | None = None
    step_drift: float | None = None
    peak_rss_mib: float | None = None
    compared_step_ms: float | None = None
    compared_step_ms_ci: Interval | None = None
    compared_peak_mib: float | None = None
    compared_peak_mib_ci: Interval | None = None
    smallest_visible: Mapping[str, float] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    signals: Mapping[str, SignalVerdict] = field(default_factory=dict)
    provisional: bool = False
    """Whether the cell has fewer launches than its verdict needs, so that the verdict may change."""

    @property
    def state(self) -> CellState:
        """Return the state over all signals: good only if nothing is bad, undecided or provisional."""
        seen = {one.seen for one in self.signals.values()}
        if self.verdict in BAD:
            return "bad"
        if self.verdict not in GOOD | UNSURE:
            return "none"
        if "bad" in seen:
            return "bad"
        return "good" if self.verdict in GOOD and not self.provisional and not seen & {"suspect", "blind"} else "unsure"

    @property
    def blind(self) -> tuple[str, ...]:
        """Return the signals that are blind."""
        return tuple(name for name, one in self.signals.items() if one.seen == "blind")

    @property
    def step_level(self) -> tuple[float | None, Interval | None]:
        """Return the step time in ms that reports show, with its confidence interval: the compared one if there is
        one.
        """
        if self.compared_step_ms is None:
            return self.step_ms, self.step_ms_ci
        return self.compared_step_ms, self.compared_step_ms_ci

    @property
    def peak_level(self) -> tuple[float | None, Interval | None]:
        """Return the peak memory in MiB that reports show, with its confidence interval: the compared one if there is
        one.
        """
        if self.compared_peak_mib is None:
            return self.peak_rss_mib, None
        return self.compared_peak_mib, self.compared_peak_mib_ci


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A/A noise of a lane, by metric (`step_time`, `peak_memory`): how much launches of one image in one round differ.

    `spread` is the standard deviation of one launch, of the figure's log; `freedom` is the number of pairs behind it.
    """

    spread: Mapping[str, float]
    freedom: Mapping[str, int]


Metric = str
"""A signal's name (`model/signals.py`), or `metrics.NAME` for a number that the scenario returns."""
Kind = Literal["first_bad", "first_fixed", "bad_from_start", "worse", "drift"]
"""`worse`: bad before as well, and much worse since. `drift`: it becomes worse from version to version; `before` and
`after` are the first and the last of them."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    value: float
    unit: str
    ci: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change along one history (`judge/history/changes.py`), by position in the series; `flows` turns it into a
    Finding.

    `before` is the position of the last image on the old side (None before the start of the history), `after` that of
    the first image on the new side; `untestable` are the positions between them that could not run.
    """

    metric: Metric
    kind: Kind
    before: int | None
    after: int
    untestable: tuple[int, ...] = ()
    effect: Effect | None = None
    p: float | None = None
    verdict: str = ""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A difference between two neighbouring versions of one block that is reported but not judged: `signal` is `log`
    or a metric, `before` and `after` are positions, `text` describes it."""

    signal: Metric
    before: int
    after: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Observation:
    """An Observed with its series, lane and variant, for reports."""

    series: str
    lane: Lane
    variant: Variant
    signal: Metric
    before: str
    after: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a series shows for one lane, variant and metric.

    `confirmed`: both sides of the boundary were measured in at least two fresh launches each, which agree.
    `untestable`: the versions between `before` and `after` that could not run, or that may belong to either side.
    `consequence_of`: the metric of the finding at the same place that explains this one
    (`judge/attribution/consequences.py`), or "".
    """

    series: str
    lane: Lane
    variant: Variant
    metric: Metric
    kind: Kind
    before: str | None
    after: str
    untestable: tuple[str, ...] = ()
    effect: Effect | None = None
    p: float | None = None
    verdict: str = ""
    confirmed: bool = False
    consequence_of: str = ""


State = bool | None
"""Whether a version is bad; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One period in which one metric is bad at one place. `begins` is None if only its end was found, `ends` is None
    if it lasts. `seen`: the last version in which it was seen. `depth`: number of episodes that were already open
    when it began. `states`: the state of the metric in all versions of the place, oldest first, whatever the
    episode."""

    begins: Finding | None
    ends: Finding | None
    seen: str
    depth: int = 0
    states: tuple[State, ...] = ()

    @property
    def finding(self) -> Finding:
        """Return the finding that gives the size of the effect."""
        found = self.begins or self.ends
        assert found is not None, "an episode has a begin or an end"
        return found

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(one for one in (self.begins, self.ends) if one is not None)


@dataclass(frozen=True, kw_only=True)
class ParamCondition:
    """Condition that a param has one of these values."""

    param: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which variants are bad, by their params (`judge/attribution/param_rules.py`): those that fulfil all conditions,
    or any of them with `any_of`. Without conditions all variants are bad.

    `indifferent` are the params that made no difference among the bad variants. `bad` and `good` count the variants
    behind the rule, `otherwise` those that are bad there by another fault. `exceptions` are variants that the rule gets
    wrong, `never_run` those without results. `also` are rules of equally many params that fit the results equally well.
    """

    conditions: tuple[ParamCondition, ...]
    any_of: bool = False
    indifferent: tuple[str, ...] = ()
    bad: int = 0
    good: int = 0
    otherwise: int = 0
    exceptions: tuple[Variant, ...] = ()
    never_run: tuple[Variant, ...] = ()
    also: tuple[tuple[ParamCondition, ...], ...] = ()


Cause = Literal["image", "gpu", "host", "interaction", "undecided"]
Doubt = Literal[
    "image or lane",  # bad and good never occur together on one lane, nor in one image
    "lane or both",  # bad on a lane with the only image measured there, good with that image elsewhere
    "nothing good",  # nothing to compare with
]


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """One fault of a series, and its cause (`judge/attribution/cause.py`): the episodes that count as one, on all lanes
    and in all variants of a scenario.

    `bad_lanes` are those where it was seen, `good_lanes` those where an image that is bad elsewhere is good, and
    `open_lanes` those where it is unknown. `cleared` are bad lanes that have no good image of their own to compare
    with, and are bad only where others are. `missing` are cells that would add evidence, most informative first.
    `rule` is None if the scenario has no params to choose, or no small rule separates bad from good (`unruly`).
    `controls` are scenarios that stay good on all of `bad_lanes`. `unseen` are variants not known to be bad on one of
    `bad_lanes`. `apart`: lanes became bad in different versions. `alike`: `bad_lanes` have GPUs of one kind. `episodes`
    are those of the bad lanes, in the order of variants and lanes. `machines` are those of a pool where it was seen;
    `suspect` is the only one of them, if nothing is good there and something is good on another machine of the pool.
    """

    series: str
    scenario: str
    metric: Metric
    cause: Cause
    variants: tuple[Variant, ...]
    episodes: tuple[Episode, ...]
    bad_lanes: tuple[Lane, ...]
    good_lanes: tuple[Lane, ...] = ()
    open_lanes: tuple[Lane, ...] = ()
    cleared: tuple[Lane, ...] = ()
    images: tuple[str, ...] = ()
    apart: bool = False
    alike: bool = False
    unseen: tuple[tuple[Variant, Lane], ...] = ()
    doubt: Doubt | None = None
    rule: Rule | None = None
    unruly: bool = False
    layer: str | None = None
    controls: tuple[str, ...] = ()
    missing: tuple[Cell, ...] = ()
    machines: tuple[str, ...] = ()
    suspect: str = ""
