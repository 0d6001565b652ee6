"""Defines records of the judge's results: verdicts on traces and cells, changes along a history, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from harness.model.matrix import Lane
from harness.model.scenario import Variant
from harness.model.signals import Per

VerdictName = Literal[
    "leak", "growth", "slowdown", "nan", "oom", "crash", "hang", "plateau", "flat",
    "suspect", "inconclusive", "incompatible", "untested",
]  # fmt: skip
BAD: frozenset[str] = frozenset({"leak", "growth", "slowdown", "nan", "oom", "crash", "hang"})
FAILURES: frozenset[VerdictName] = frozenset({"oom", "crash", "hang"})
"""The verdicts on a launch that did not end well."""
GOOD: frozenset[str] = frozenset({"plateau", "flat"})
UNSURE: frozenset[str] = frozenset({"suspect", "inconclusive"})
UNMEASURED: frozenset[str] = frozenset({"untested", "incompatible"})

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The growth of one amount in a launch: of a column of memory (`judge/trace/growth.py`), or of a count
    (`judge/trace/counts.py`), from the samples to the verdict on the signal. All rates are in units per step.

    `rate` and `interval` are those of a leak, else of the late part; None if there are too few rows. `excluded` is the
    rate above which growth is ruled out, and `detectable` the minimum detectable leak rate at this noise. `why` is the
    reason for the verdict. `column` is that of the trace, `median` its usual value and `rise` its rise since the start.
    `layer` is what holds the leaked memory. `slow`: it still grows, but certainly more slowly than the limit.
    """

    verdict: VerdictName
    why: str = ""
    rate: float | None = None
    interval: Interval | None = None
    excluded: float | None = None
    detectable: float | None = None
    column: str = ""
    median: float | None = None
    rise: float = 0.0
    layer: str | None = None
    slow: bool = False


NOT_MEASURED = Growth(verdict="inconclusive")


@dataclass(frozen=True, kw_only=True)
class TraceVerdict:
    """The verdict on one trace (`judge/trace/trace_verdict.py`): what `harness judge` prints.

    `verdicts` lists all that apply, strongest first. `steps` is the number of steps that it is based on: a flat trace
    is known to be flat only up to there. `growth` is that of the column that decides about memory, and `beside` has
    those of the other columns. `early` marks `suspect (early)`.
    """

    verdicts: tuple[VerdictName, ...]
    steps: int
    why: str
    growth: Growth = NOT_MEASURED
    beside: Mapping[str, Growth] = field(default_factory=dict)
    step_ms: float | None = None
    step_drift: float | None = None
    peak_rss_mib: float | None = None
    early: bool = False

    @property
    def verdict(self) -> VerdictName:
        """Return the strongest verdict."""
        return self.verdicts[0]


SignalState = Literal["good", "bad", "suspect", "blind", "none"]
"""State of a signal: within its limit (`good`), beyond it (`bad`), beyond it in one launch only (`suspect`);
`blind`: a change as large as the limit would not have shown; `none`: not applicable (no GPU, no earlier version, a
limit of `none`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalVerdict:
    """The verdict on one signal of a cell. `value` is its figure in the signal's unit, with its confidence interval;
    `limit` is what counts as bad; `visible` is the change that is ruled out (a share for levels, an amount per step
    for growths); `why` is the reason for the state, "" if the figures show it; `remedy` is what would let it be judged.
    `apart`: the figure cannot be compared with those of other versions, however many launches there are: it comes from
    other rounds, or from launches that do not count. `slow`: how many launches of the version were in a slow mode, and
    of how many, if launches have two modes.
    """

    seen: SignalState
    value: float | None = None
    ci: Interval | None = None
    limit: float | None = None
    visible: float | None = None
    why: str = ""
    remedy: str = ""
    apart: bool = False
    slow: tuple[int, int] | None = None

    @property
    def is_uncompared(self) -> bool:
        """Return whether this version could not be compared with the others: it was measured on another day, or in too
        few rounds. Changes between other versions then say nothing about this one.
        """
        return self.seen == "blind" and self.visible is None

    @property
    def is_compared(self) -> bool:
        """Return whether the figure of a level was compared with those of other versions."""
        return self.value is not None and not self.apart and not self.is_uncompared


NOT_JUDGED = SignalVerdict(seen="none")

CellState = Literal["bad", "good", "unsure", "none"]
"""State of a cell over all its signals; `none`: nothing is known about the image."""


def is_small_growth(value: float, *, limit: float) -> bool:
    """Return whether growth that is certain is too small to be bad, and too large to be called flat."""
    return limit / 2 <= value < limit


@dataclass(frozen=True, kw_only=True)
class CellVerdict:
    """The verdict on one cell, over its trials (`judge/cell.py`); an entry of `summary.json`'s `cells`.

    `verdicts` lists all that apply, strongest first. All figures are in `signals`, in the signals' units.
    `agreeing` is the number of launches on which the verdict rests, `failed` the number that failed, and `signal` the
    one that killed them; `too_short` is the number that ended without a fault before a failure was due, and count
    neither for it nor against it. `drift` is the rise of the step time within a launch, a share. `provisional`: the
    cell has fewer launches than its verdict needs, so that the verdict may change. `per`: what rates are counted by.
    """

    verdicts: tuple[VerdictName, ...]
    why: str
    trials: int = 0
    agreeing: int = 0
    failed: int = 0
    too_short: int = 0
    signal: int | None = None
    steps: int = 0
    layer: str | None = None
    drift: float | None = None
    signals: Mapping[str, SignalVerdict] = field(default_factory=dict)
    provisional: bool = False
    per: Per = "step"

    @property
    def verdict(self) -> VerdictName:
        """Return the strongest verdict."""
        return self.verdicts[0]

    @property
    def at_risk(self) -> int:
        """Return the number of launches that could show the failure."""
        return self.trials - self.too_short

    def able(self, metric: Metric) -> int:
        """Return the number of launches that could show a change of this metric."""
        return self.at_risk if metric == "outcome" else self.trials

    @property
    def failing(self) -> float | None:
        """Return the share of the launches at risk that failed; None if none was at risk."""
        return self.failed / self.at_risk if self.at_risk else None

    def of(self, signal: str) -> SignalVerdict:
        """Return the verdict on a signal; one without figures if the cell has none."""
        return self.signals.get(signal, NOT_JUDGED)

    def grows_slowly(self, name: str = "memory") -> bool:
        """Return whether the memory of a good cell, or what another signal counts, certainly grows by half the limit or
        more: such a cell is not flat. The growth of a count has no interval, because a count is exact.
        """
        found = self.of(name)
        if found.value is None or found.limit is None or self.verdict not in GOOD or found.seen == "bad":
            return False
        is_certain = name != "memory" if found.ci is None else found.ci[0] > 0
        return is_certain and is_small_growth(found.value, limit=found.limit)

    @property
    def state(self) -> CellState:
        """Return the state over all signals: good only if nothing is bad, undecided or provisional."""
        seen = {signal.seen for signal in self.signals.values()}
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
        return tuple(name for name, signal in self.signals.items() if signal.seen == "blind")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The standard deviation of the log of one launch, with its degrees of freedom."""

    deviation: float
    freedom: int


Noise = Mapping[str, Spread]
"""A/A noise of a lane, by metric (`step_time`, `peak_memory`): how much launches of one image in one round differ. The
degrees of freedom are the number of pairs behind it."""
Metric = str
"""A signal's name (`model/signals.py`), or `metrics.NAME` for a number that the scenario returns."""
ChangeKind = Literal["first_bad", "first_fixed", "bad_from_start", "worse", "drift", "better"]
"""`worse`: already bad before, and even worse since. `drift`: it becomes worse from version to version; `before` and
`after` are the first and the last of these versions. `better`: it ends nothing bad, and is no finding."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    value: float
    unit: str
    ci: Interval | None = None

    @property
    def bounds(self) -> Interval:
        """Return the interval, or the value as both ends of one if it is exact."""
        return self.ci or (self.value, self.value)


Place = TypeVar("Place", int, str)
"""A version: its position in the series, or its name."""


@dataclass(frozen=True, kw_only=True)
class Change(Generic[Place]):
    """A change of a metric along one history: between positions while a row is judged (`judge/history/changes.py`),
    between names in a Finding.

    `before` is the last version on the old side (None before the start of the history), `after` the first one on the
    new side. `confirmed`: the launches of both sides agree; a finding has at least two fresh ones on each.
    """

    metric: Metric
    kind: ChangeKind
    before: Place | None
    after: Place
    effect: Effect | None = None
    p: float | None = None
    verdict: str = ""
    confirmed: bool = False

    @property
    def bad_side(self: Change[int]) -> int:
        """Return the position on the bad side of the change."""
        return self.before if self.kind == "first_fixed" and self.before is not None else self.after

    @property
    def good_side(self: Change[int]) -> int:
        """Return the position on the good side of the change."""
        return self.after if self.kind == "first_fixed" else self.begin

    @property
    def begin(self: Change[int]) -> int:
        """Return the last position on the old side; -1 before the start of the history."""
        return -1 if self.before is None else self.before

    @property
    def between(self: Change[int]) -> tuple[int, ...]:
        """Return the positions between both sides: they could not run, or may belong to either side or to a drift."""
        return tuple(range(self.begin + 1, self.after))

    def meets(self: Change[int], other: Change[int]) -> bool:
        """Return whether both may be the same change: of one metric and kind, between versions that overlap."""
        is_alike = (self.metric, self.kind) == (other.metric, other.kind)
        return is_alike and self.begin < other.after and other.begin < self.after


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A difference between two neighbouring versions of one row that is reported but not judged: `signal` is `log`
    or a metric, `before` and `after` are positions, `text` describes it. `last`: the last version of an
    unbroken row from `after` on that shows it; None if later versions were not checked."""

    signal: Metric
    before: int
    after: int
    text: str
    last: int | None = None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """An Observed with its series, lane and variant, for reports; or a difference between this lane and another one in
    all versions from `before`, which is `after`, to `last`. `untestable`: the versions before `after`, back to the last
    one that was launched."""

    series: str
    lane: Lane
    variant: Variant
    signal: Metric
    before: str
    after: str
    text: str
    last: str | None = None
    untestable: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding(Change[str]):
    """A change that a series shows for one lane and variant.

    `untestable`: the versions between `before` and `after` that could not run, or that may belong to either side.
    `consequence_of`: the metric of the finding at the same place that explains this one
    (`judge/attribution/group_faults.py`), or "".
    """

    series: str
    lane: Lane
    variant: Variant
    before: str | None  # both named again, because a number would be read from a file otherwise
    after: str
    untestable: tuple[str, ...] = ()
    consequence_of: str = ""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A signal that becomes worse from version to version, too little to show in any single one.

    `effect` is the ratio of the last version's level to the first one's. `versions` and `runs` are the numbers of
    versions and runs that show it. `p` is the p-value, corrected for all tests, also those at earlier looks at this
    history.
    """

    signal: Metric
    first: str
    last: str
    effect: Effect
    p: float
    versions: int
    runs: int


def bad_along(places: Sequence[Place], changes: Sequence[Change[Place]]) -> list[bool]:
    """Return whether the changes of one history make it bad at each of its places, oldest first."""
    changed = {change.after: change.kind != "first_fixed" for change in changes}
    bad = not next((changed[place] for place in places if place in changed), True)
    return [bad := changed.get(place, bad) for place in places]


State = bool | None
"""True if a version is bad; None if unknown."""
