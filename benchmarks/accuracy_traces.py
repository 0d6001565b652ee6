"""Error rates of the judge and of simpler rules on the same generated traces.

For each quiet generator: the shares of traces that each rule calls a leak (or a slowdown), that the harness calls a
leak in a trial with looks, and that it leaves undecided. For each leak: the share found; the share found of leaks at
twice the minimum detectable rate; the median relative error of the rate; and how often the true rate is not ruled out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import beta

from benchmarks import generators, held_out, nasty, step_times
from benchmarks.generators import Floats, Generator, Leak, Quiet
from benchmarks.simple_rules import RULES
from harness.judge.trace.samples import prefix
from harness.judge.trace.trace_verdict import decide_at_look, judge_column, judge_trace
from harness.model import GOOD, UNSURE, Limits, Steps, Trace, TraceVerdict

LIMITS = Limits()
STEPS = Steps()
RATES = (1.0, 30.0)
STEP = np.arange(1, STEPS.budget + 1, dtype=np.float64)
SMALL = (0.01, 0.05, 0.2)
QUIET: Mapping[str, Mapping[str, Quiet]] = {"quiet": {**generators.QUIET, **nasty.QUIET}, "held out": held_out.QUIET}
LEAKS: Mapping[str, Mapping[str, Leak]] = {"leak": {**generators.LEAKS, **nasty.LEAKS}, "new leak": held_out.LEAKS}
TIMES: Mapping[str, Mapping[str, Quiet]] = {"quiet times": step_times.QUIET, "slowdown": step_times.SLOWDOWNS}

SHARE = 1
"""Divisor of `--count`."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One generator. `shares`: rule -> share called bad. For quiet generators, `looks` is the share called bad with
    looks, and `undecided` the share neither bad nor good. For leaks, `twice` is the share found of leaks at twice the
    minimum detectable rate, and `missed` the share called good.
    """

    generator: str
    kind: str
    count: int
    shares: Mapping[str, float] = field(default_factory=dict)
    looks: float | None = None
    undecided: float | None = None
    twice: float | None = None
    missed: float | None = None
    rate_error: float | None = None
    excluded_holds: float | None = None


# ---------------------------------------------------------------- memory


def quiet_row(name: str, rng: Generator, *, count: int, kind: str) -> Row:
    traces = [generators.pages(QUIET[kind][name](rng, STEPS.budget)) for _ in range(count)]
    found = [_verdict(rss_kib) for rss_kib in traces]
    return Row(
        generator=name,
        kind=kind,
        count=count,
        shares=_shares(traces, found),
        looks=_share([_called_at_a_look(rss_kib) for rss_kib in traces]),
        undecided=_share([one.verdict in UNSURE for one in found]),
    )


def leak_row(name: str, rng: Generator, *, count: int, kind: str) -> Row:
    rates = np.exp(rng.uniform(*np.log(RATES), size=count))
    traces = [generators.pages(LEAKS[kind][name](rng, STEPS.budget, float(rate))) for rate in rates]
    found = [_verdict(rss_kib) for rss_kib in traces]
    pairs = list(zip(found, rates, strict=True))
    errors = [abs((one.growth.rate or 0) / rate - 1) for one, rate in pairs if one.verdict == "leak"]
    clear = [one.verdict == "leak" for (one, rate), v in zip(pairs, traces, strict=True) if rate >= 2 * _detectable(v)]
    holds = [one.growth.excluded >= rate for one, rate in pairs if one.growth.excluded is not None]
    return Row(
        generator=name,
        kind=kind,
        count=count,
        shares=_shares(traces, found),
        twice=_share(clear) if clear else None,
        missed=_share([one.verdict in GOOD for one in found]),
        rate_error=float(np.median(errors)) if errors else None,
        excluded_holds=_share(holds) if holds else None,
    )


def small_row(name: str, rng: Generator, *, count: int, kind: str) -> Row:
    """Judge leaks below the limit, under noise of 64 KiB, which must be neither called leaks nor ruled out."""
    rate = float(name.split(maxsplit=1)[0])
    noise = rng.normal(0, 64, (count, STEPS.budget))
    traces = [generators.pages(rate * np.arange(STEPS.budget) + each) for each in noise]
    found = [_verdict(rss_kib) for rss_kib in traces]
    holds = [one.growth.excluded >= rate for one in found if one.growth.excluded is not None]
    return Row(
        generator=name,
        kind=kind,
        count=count,
        shares=_shares(traces, found),
        excluded_holds=_share(holds) if holds else None,
    )


def _called_at_a_look(rss_kib: Floats) -> bool:
    """Return whether a trial with looks is called a leak, either with the whole budget or if it may stop early."""
    return any(_trial_verdict(rss_kib, whole_budget=whole) == "leak" for whole in (False, True))


def _trial_verdict(rss_kib: Floats, *, whole_budget: bool) -> str:
    whole = Trace(step=STEP, columns={"rss_kib": rss_kib})
    for look in STEPS.looks()[:-1]:
        seen = prefix(whole, look)
        if decide_at_look(seen, limits=LIMITS, steps=STEPS, whole_budget=whole_budget) == "stop":
            return judge_trace(seen, limits=LIMITS, steps=STEPS).verdict
    return judge_trace(whole, limits=LIMITS, steps=STEPS).verdict


def _verdict(rss_kib: Floats) -> TraceVerdict:
    return judge_trace(Trace(step=STEP, columns={"rss_kib": rss_kib}), limits=LIMITS, steps=STEPS)


def _detectable(rss_kib: Floats) -> float:
    """Return the minimum detectable leak of the trace, in KiB a step."""
    trace = Trace(step=STEP, columns={"rss_kib": rss_kib})
    growth = judge_column(trace, "rss_kib", limit=LIMITS.leak_kib_per_step, steps=STEPS)
    return np.inf if growth.detectable is None else growth.detectable


def _shares(traces: Sequence[Floats], found: Sequence[TraceVerdict]) -> Mapping[str, float]:
    own = {"harness": _share([one.verdict == "leak" for one in found])}
    return own | {name: _share([rule(rss_kib) for rss_kib in traces]) for name, rule in RULES.items()}


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


# ---------------------------------------------------------------- step times


def time_row(name: str, rng: Generator, *, count: int, kind: str) -> Row:
    found = [
        judge_trace(
            Trace(step=STEP, columns={"step_s": TIMES[kind][name](rng, STEPS.budget)}), limits=LIMITS, steps=STEPS
        )
        for _ in range(count)
    ]
    shares = {"harness": _share([one.verdict == "slowdown" for one in found])}
    return Row(generator=name, kind=kind, count=count, shares=shares)


# ---------------------------------------------------------------- all generators


MAKERS: Mapping[str, tuple[Callable[..., Row], Sequence[str]]] = {
    **{kind: (quiet_row, tuple(sources)) for kind, sources in QUIET.items()},
    **{kind: (leak_row, tuple(sources)) for kind, sources in LEAKS.items()},
    "small": (small_row, tuple(f"{rate:g} KiB/step" for rate in SMALL)),
    **{kind: (time_row, tuple(sources)) for kind, sources in TIMES.items()},
}


def rows(*, seed: int, count: int) -> list[Row]:
    """Judge `count` traces per generator. Each has its own random stream, so that a new generator changes no other."""
    jobs = [(kind, name, seed, count) for kind, (_, names) in MAKERS.items() for name in names]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_made, jobs))


def _made(job: tuple[str, str, int, int]) -> Row:
    kind, name, seed, count = job
    return MAKERS[kind][0](name, np.random.default_rng([seed, *name.encode()]), count=count, kind=kind)


# ---------------------------------------------------------------- the table

COLUMNS: Mapping[str, str] = {
    "looks": "looks",
    "undecided": "undecided",
    "twice": "at twice",
    "missed": "missed",
    "rate_error": "rate error",
    "excluded_holds": "excluded",
}


def table(rows: Sequence[Row]) -> str:
    rules = ["harness", *RULES]
    head = f"{'kind':12}{'generator':22}" + "".join(f"{rule:>10}" for rule in rules)
    lines = [head + "".join(f"{title:>11}" for title in COLUMNS.values())]
    for row in rows:
        shares = "".join(f"{row.shares[rule]:10.3f}" if rule in row.shares else f"{'':10}" for rule in rules)
        more = "".join(f"{_cell(getattr(row, name)):>11}" for name in COLUMNS)
        lines.append(f"{row.kind:12}{row.generator:22}{shares}{more}".rstrip())
    return "\n".join([*lines, "", *(_total(rows, kind) for kind in MAKERS)])


def _total(rows: Sequence[Row], kind: str) -> str:
    """Return how many traces of a kind were called bad, with the 95 % interval of that share (Clopper and Pearson)."""
    of_kind = [row for row in rows if row.kind == kind]
    count = sum(row.count for row in of_kind)
    called = [max(row.shares["harness"], row.looks or 0.0) * row.count for row in of_kind]
    bad = round(sum(called))
    low = float(beta.ppf(0.025, bad, count - bad + 1)) if bad else 0.0
    high = float(beta.ppf(0.975, bad + 1, count - bad)) if bad < count else 1.0
    return f"{kind:12}called bad: {bad} of {count}, {bad / count:.5f} ({low:.5f} to {high:.5f})"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
