"""Made results, each for something that a report must say and that no golden run shows.

`made.approved.txt` has what a terminal prints of each, in brief and in full but for the tables of all signals: all
sentences come from the same document as those of the page and of Markdown. A case's name says what a reader would
otherwise lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.model import (
    CellResult,
    CellVerdict,
    Conditions,
    Effect,
    Finding,
    Lane,
    Limits,
    Observation,
    RunResult,
    SignalVerdict,
    Skip,
    Variant,
)
from harness.model.measured import Printed
from harness.report.terminal import run_report
from tests.golden.load import APPROVED
from tests.players import build, faults
from tests.players.build import HERE, MULTIDICT, ORJSON, POP, TENSORFLOW, ZEROS, flat, leak, seen, told
from tests.players.faults import NEW, OLD, PLAIN, SIGNAL, lane, run
from tests.players.trials import facts_of

WIDTH = 160
TORCH = build.variant("torch_ops")
THIRD, TWIN = lane("third", "RTX 5090"), lane("twin", "RTX 4090")
X, Y = lane("x", None), lane("y", None)
BOX_OLD, BOX_NEW = lane("box", "RTX 3090"), lane("box", "RTX 4090")
Change = Callable[[CellResult], CellResult]


def shown(result: RunResult) -> str:
    """Return what a terminal prints of a run, in brief and then in full, without the last line of each."""
    brief, wide = (run_report.text(result, width=WIDTH, wide=wide) for wide in (False, True))
    parts = [part for part in wide.split("\n\n") if ", all signals" not in part.partition("\n")[0]]
    same = {line.rstrip() for part in parts for line in part.splitlines()}
    first = [line.rstrip() for line in brief.splitlines() if line.rstrip() not in same]
    rest = [line.rstrip() for part in parts for line in part.splitlines()]
    return (
        "\n".join(line for line in [*first, "--wide", *rest] if not line.startswith(("Report: ", "Reasons: "))) + "\n"
    )


# ---------------------------------------------------------------- builders


def row(judge: Callable[[str], CellVerdict], *found: Finding, **given: Any) -> RunResult:
    """Return a run of one row, with a verdict for each version."""
    return build.run([(MULTIDICT, [HERE], [POP])], lambda version, *_: judge(version), findings=found, **given)


def alike(verdict: CellVerdict, *variants: Variant, **given: Any) -> RunResult:
    """Return a run of these variants of four versions, in which all cells are alike."""
    return build.run([(ORJSON, [HERE], list(variants) or [build.DELETED])], lambda *_: verdict, **given)


def change(**fields: Any) -> Finding:
    return build.finding(MULTIDICT, HERE, POP, **{"before": "6.2.0", "after": "6.3.0", **fields})


def changes(*found: Finding) -> RunResult:
    """Return the quickstart with other findings."""
    return build.with_findings(build.quickstart(), found)


def cells(result: RunResult, changed: Change) -> RunResult:
    return replace(result, cells=tuple(map(changed, result.cells)))


def verdicts(result: RunResult, **fields: Any) -> RunResult:
    return cells(result, lambda cell: replace(cell, verdict=replace(cell.verdict, **fields)))


def last(result: RunResult, verdict: RunResult | str, **signals: SignalVerdict) -> RunResult:
    """Return a run with another verdict, whose last cell shows these signals."""
    *before, entry = result.cells
    own = replace(entry.verdict, signals={**entry.verdict.signals, **signals})
    return replace(result, cells=(*before, replace(entry, verdict=own)), verdict=verdict)


def level(signal: str, ratio: float, **fields: Any) -> Finding:
    verdict = {"peak_memory": "more memory"}.get(signal, "slower")
    return change(metric=signal, verdict=verdict, effect=Effect(value=ratio, unit="ratio"), **fields)


SLOW = SignalVerdict(
    seen="suspect", value=8.19e-5, limit=0.1, why="5.73 times that of the version before, in 1 launch",
    remedy="more launches would settle it",
)  # fmt: skip
COARSE = SignalVerdict(seen="blind", visible=3.33, limit=1.0)


def with_judge(history: tuple[Any, Sequence[Lane], Sequence[Variant]], judge: build.Judge, **given: Any) -> RunResult:
    return build.run([history], judge, **given)


# ---------------------------------------------------------------- whose fault

SQUARES: Mapping[str, RunResult] = {
    " / ".join(f"{where} {letters}" for where, letters in square.items()): run(square)
    for square in (
        {OLD: "ggx", NEW: "iib"}, {OLD: "ggs", NEW: "iib"}, {OLD: "ggn", NEW: "iib"}, {OLD: "ggn", NEW: "unb"},
        {OLD: "ggb", NEW: "ggb"}, {OLD: "gub", NEW: "iib"}, {OLD: "bbb", NEW: "bbb"}, {OLD: "gbg", NEW: "gbg"},
        {OLD: "ggb", NEW: "iib", THIRD: "iib"}, {OLD: "gbb", NEW: "ggb"}, {NEW: "ggb"}, {OLD: "uuu", NEW: "ggb"},
        {X: "ggb", Y: "ggb"}, {X: "ggb", Y: "uub"}, {TWIN: "ggb", NEW: "iib"}, {OLD: "ggb", X: "ggb"},
        {OLD: "ggg", NEW: "bbb"}, {BOX_OLD: "ggg", BOX_NEW: "bbb"}, {OLD: "ggg", NEW: "bbb", THIRD: "bbb"},
        {BOX_OLD: "ggg", BOX_NEW: "bbb", THIRD: "bbb"}, {OLD: "ggg", NEW: "bbb", TWIN: "bbb"},
        {TWIN: "ggg", NEW: "bbb"}, {X: "ggg", Y: "bbb"}, {OLD: "ggg", NEW: "ggb"},
        {OLD: "ggb", NEW: "iib", THIRD: "ggg"}, {OLD: "bgg", NEW: "ggb"}, {OLD: "ggg", NEW: "uub"},
        {OLD: "ggg", NEW: "iib"}, {NEW: "uub"}, {NEW: "bbb"}, {NEW: "iib"}, {NEW: "gub"},
        {OLD: "bub", NEW: "ubb", THIRD: "ubu"},
    )
}  # fmt: skip
"""Tables of cards and versions, as in `players/faults.py`: `b` leaks, `g` is good, the others are not known."""


def passed_in_too_few() -> RunResult:
    return cells(
        run({NEW: "uub"}),
        lambda cell: cell if cell.verdict.trials
        else replace(cell, verdict=replace(cell.verdict, verdicts=("flat",), trials=4)),
    )  # fmt: skip


def two_series() -> RunResult:
    wheel = build.series("wheel", ["1.15.4", "1.15.5"])
    rows = [(faults.NGC, [OLD], [PLAIN]), (wheel, [OLD], [PLAIN])]
    return faults.judged(build.run(rows, lambda version, *_: leak(24.1) if version in ("22.12", "1.15.5") else flat()))


def left_out_host() -> RunResult:
    result = run({NEW: "ggb"})
    matrix = replace(result.plan.matrix, hosts=(NEW.host, OLD.host))
    return faults.judged(replace(result, plan=replace(result.plan, matrix=matrix)))


def of_both_cards(*fields: Mapping[str, Any]) -> RunResult:
    """Return a run of two cards, on both of which the newest version has changes with these fields."""
    result = run({OLD: "ggb", NEW: "ggb"})
    return build.with_findings(result, [replace(one, **each) for each in fields for one in result.findings])


def own_histories() -> RunResult:
    pop, read = (build.variant("headers", then=then) for then in ("pop", "read"))
    bad = {("21.08", "pop"), ("21.08", "read"), ("22.12", "pop")}
    judge: build.Judge = lambda version, _, one: leak(5.06) if (version, one.params[0][1]) in bad else flat()  # noqa: E731
    return faults.judged(with_judge((faults.NGC, [NEW], [pop, read]), judge))


FAULTS: Mapping[str, RunResult] = {
    "the story, once its deciding cell was run": run({OLD: "ggb", NEW: "iib"}, variants=SIGNAL),
    "the story, before": run({OLD: "ggu", NEW: "iib"}, variants=SIGNAL),
    "a cell that passed in too few launches is not nothing good": passed_in_too_few(),
    "a control that stays good is quoted": run({NEW: "ggb"}, controls=[TORCH]),
    "of many controls, three are named":
        run({NEW: "ggb"}, controls=[build.variant(f"t{number}") for number in range(6)]),
    "two series say each for itself": two_series(),
    "a host that was left out of the run is named": left_out_host(),
    "steps that take longer": of_both_cards(
        {"metric": "step_time", "verdict": "slower", "effect": Effect(value=2.5, unit="ratio")}),
    "steps that get slower are told from steps that are slower": of_both_cards(
        *({"metric": "step_time", "verdict": verdict, "effect": None} for verdict in ("slowdown", "slower"))),
    "more faults than fit are counted": run(
        {NEW: "ggb"}, variants=[build.variant(f"s{number}") for number in range(5)]),
    "variants with histories of their own have rules of their own": own_histories(),
}  # fmt: skip


# ---------------------------------------------------------------- changes


def in_two_variants() -> RunResult:
    """Return a run in which a peak rises by two sizes."""
    variants = [build.variant("s", a=name) for name in "ab"]
    found = [level("peak_memory", size, variant=of) for of, size in zip(variants, (1.202, 1.223), strict=True)]
    return with_judge((MULTIDICT, [HERE], variants), lambda *_: flat(), findings=found)


def many_crashes(count: int) -> RunResult:
    pairs = list(pairwise(image.version for image in MULTIDICT.images))[:count]
    variants = [build.variant(f"s{newer}") for _, newer in pairs]
    found = [
        change(before=older, after=newer, metric="outcome", verdict="crash", effect=None, variant=of)
        for (older, newer), of in zip(pairs, variants, strict=True)
    ]
    return with_judge((MULTIDICT, [HERE], variants), lambda *_: flat(), findings=found)


def mostly_repaired(*, lasting: bool) -> RunResult:
    slow = {"6.3.0": 109.0, "6.3.1": 1.5}
    if lasting:
        slow |= dict.fromkeys(["6.3.2", "6.4.4", "6.5.0", "6.6.3", "6.6.4"], 1.4)

    def judge(version: str) -> CellVerdict:
        state = "bad" if version in slow else "good"
        return seen(flat(), step_time=SignalVerdict(seen=state, value=slow.get(version, 1.0), limit=0.1))

    begins = level("step_time", 109.0)
    return row(
        judge, begins, *([] if lasting else [replace(begins, kind="first_fixed", before="6.3.1", after="6.3.2")])
    )


def ways_to_fail() -> RunResult:
    ends = {1: "exit code 7", 2: "no end within 30 s", 3: "exit code 7"}
    variants = [build.variant("s", a=number) for number in ends]
    found = [
        change(
            variant=of, metric="outcome", verdict="crash", effect=Effect(value=1.0, unit="failures"), p=0.01 * number
        )
        for number, of in enumerate(variants, start=1)
    ]

    def judge(version: str, _: Lane, of: Variant) -> CellVerdict:
        return replace(build.crash(), why=ends[int(str(of.params[0][1]))]) if version >= "6.3" else flat()

    return with_judge((MULTIDICT, [HERE], variants), judge, findings=found)


def came_with_it() -> RunResult:
    """Return the quickstart, in which another package came with the bad version."""

    def installed(cell: CellResult) -> CellResult:
        version = cell.cell.image.version
        packages = {"multidict": version, "certifi": "1.13.1" if version == "6.2.0" else "1.17.1", "six": "1"}
        facts = facts_of({"packages": packages})
        return replace(cell, trials=tuple(replace(trial, facts=facts) for trial in cell.trials))

    return cells(build.quickstart(), installed)


def some_variants() -> RunResult:
    two = [build.variant("s", a=number) for number in (1, 2)]
    leaks = [change(variant=of) for of in two]
    slower = level("step_time", 1.5, variant=two[0], consequence_of="memory")
    return with_judge(
        (MULTIDICT, [HERE], two), lambda version, *_: leak(7.8) if version >= "6.3" else flat(),
        findings=[*leaks, slower],
    )  # fmt: skip


def of_two_series() -> RunResult:
    rows = [(MULTIDICT, POP, "6.2.0", "6.3.0"), (TENSORFLOW, ZEROS, "2.14.1", "2.15.1")]
    leaks = [build.finding(of, HERE, variant, before=good, after=bad) for of, variant, good, bad in rows]
    effect = Effect(value=1.5, unit="ratio")
    slower = replace(leaks[1], metric="step_time", effect=effect, verdict="slower", consequence_of="memory")
    return build.run(
        [(of, [HERE], [variant]) for of, variant, *_ in rows],
        lambda version, *_: leak(7.8) if version >= "6.3" or "2.15" <= version < "3" else flat(),
        findings=[*leaks, slower],
    )


def timed(older_ms: float, newer_ms: float, ratio: float | None = None) -> RunResult:
    """Return a run whose steps take longer since 6.3.0."""
    effect = None if ratio is None else Effect(value=ratio, unit="ratio", ci=(1.37, 1.47))
    finding = change(metric="step_time", verdict="slower", **({} if effect is None else {"effect": effect}))

    def judge(version: str) -> CellVerdict:
        ms = newer_ms if version >= "6.3" else older_ms
        return told(flat(step_ms=ms), "step_time", seen="good", ci=None)

    return row(judge, finding)


def counted(signal: str, *, bad: float, good: float = 0.0, **fields: Any) -> RunResult:
    """Return a run in which a number is another one since 6.3.0."""

    def judge(version: str) -> CellVerdict:
        is_bad = version >= "6.3"
        value = SignalVerdict(seen="bad" if is_bad else "good", value=bad if is_bad else good, limit=0.01, visible=0.0)
        return seen(flat(), **{signal: value})

    return row(judge, change(metric=signal, **fields))


def longer_at_its_end() -> RunResult:
    def judge(version: str) -> CellVerdict:
        is_bad = version == "6.3.0"
        figures = {"step_time": 0.001, "run_time": 7.2 if is_bad else 4.2, "end_time": 3.01 if is_bad else 0.01}
        levels = {
            name: SignalVerdict(seen="good", value=each, limit=0.1, visible=0.05) for name, each in figures.items()
        }
        return seen(flat(), **levels)

    ends = change(metric="end_time", verdict="slower", effect=Effect(value=3.0, unit="s"), p=1e-9)
    runs = replace(ends, metric="run_time", effect=Effect(value=7.2 / 4.2, unit="ratio"), consequence_of="end_time")
    return row(judge, ends, runs)


CHANGES: Mapping[str, RunResult] = {
    "what came, went and came again has each size": build.quickstart(),
    "several series, what lasts first": build.varied(),
    "consequences stand on the box of their cause": build.worsening(),
    "all states of signals": build.signalled(),
    "a fault that lasts comes before older ones that are fixed": changes(
        change(metric="peak_memory", verdict="more memory", effect=None),
        change(kind="first_fixed", metric="peak_memory", verdict="more memory", effect=None, before="6.3.1",
               after="6.3.2"),
        change(metric="step_time", verdict="slower", effect=None, before="6.4.4", after="6.5.0"),
        change(metric="outcome", verdict="crash", effect=None, before="6.5.0", after="6.6.3"),
        change(kind="first_fixed", metric="outcome", verdict="crash", effect=None, before="6.6.3", after="6.6.4")),
    "bad from the start": changes(change(kind="bad_from_start", before=None, after="6.0.5")),
    "a drift": changes(change(kind="drift", metric="step_time", verdict="slower", before="6.0.5", effect=None)),
    "only its end is known": changes(change(kind="first_fixed", before="6.3.1", after="6.3.2")),
    "only the end of slower steps is known": row(lambda _: flat(), level("step_time", 0.652, kind="first_fixed")),
    "a hang": changes(change(metric="outcome", verdict="hang", effect=None)),
    "out of memory": changes(change(metric="outcome", verdict="oom", effect=None)),
    "a leak of mebibytes": changes(change(effect=Effect(value=1024 * 24.0, unit="KiB/step"))),
    "slower step by step": changes(change(metric="step_time", verdict="slowdown", effect=None)),
    "a higher peak": changes(level("peak_memory", 1.23)),
    "one side has a single launch": changes(change(confirmed=False)),
    "rates that their intervals do not tell apart are one": row(
        lambda version: flat() if version < "6.3" else
        told(leak(2.2), "memory", ci=(1.6, 2.9)) if version == "6.3.1" else leak(1.7), change(effect=build.rate(1.7))),
    "two sizes of one change are told in one unit": in_two_variants(),
    "more changes than fit are counted": many_crashes(5),
    "a fault that is mostly repaired in between": mostly_repaired(lasting=False),
    "a fault that is mostly repaired, and lasts": mostly_repaired(lasting=True),
    "each way in which variants fail is quoted once": ways_to_fail(),
    "a package is not blamed for what came with it": came_with_it(),
    "a consequence in some variants is not said of all": some_variants(),
    "a consequence stands on no box of another series": of_two_series(),
    "a size that is the ratio of two figures": timed(10.0, 13.1, 1.312),
    "a size that is not the ratio of two figures": timed(10.0, 13.1, 1.42),
    "figures that are compared share microseconds": timed(0.0373, 0.141),
    "figures that are compared share seconds": timed(900.0, 1200.0),
    "a checksum that differs looks different":
        counted("metrics.checksum", bad=42.000000001, good=42.0, verdict="value", effect=None),
    "a value that sinks below zero is told with both figures":
        counted("metrics.reward", bad=-137.2, good=-55.3, verdict="late", effect=None),
    "files that pile up": counted("open_files", bad=1.0, verdict="growth",
                                  effect=Effect(value=1.0, unit="files/step", ci=(0.99, 1.01))),
    "a box counts the launches that agree": row(
        lambda version: replace(leak(7.8) if version == "6.3.0" else flat(), trials=6, agreeing=2), change()),
    "a box counts the launches whose counts agree": row(
        lambda version: replace(
            flat(), trials=6, agreeing=2, verdicts=("growth",) if version == "6.3.0" else ("flat",)),
        change(metric="open_files", verdict="growth", effect=Effect(value=1.0, unit="files/step"))),
    "a slower run, with the part that takes longer": longer_at_its_end(),
}  # fmt: skip


# ---------------------------------------------------------------- not known, or not yet


def growing(lowest: float, why: str = "", *, rate: float = 7.467, **fields: Any) -> CellVerdict:
    """Return a verdict on memory that may or may not grow."""
    why = (
        why or f"RSS grows {rate} KiB/step ({lowest:g} to 18.15): too early to distinguish it from a buffer that fills"
    )
    unsure = replace(build.unknown("suspect", why), trials=1, steps=30)
    return told(replace(unsure, **fields), "memory", value=rate, ci=(lowest, 18.15))


def oldest(verdict: CellVerdict, of_run: Any) -> RunResult:
    first, *rest = build.quiet().cells
    return replace(build.quiet(), cells=(replace(first, verdict=verdict), *rest), verdict=of_run)


def newest(verdict: CellVerdict, of_run: Any) -> RunResult:
    *before, entry = build.quiet().cells
    return replace(build.quiet(), cells=(*before, replace(entry, verdict=verdict)), verdict=of_run)


def unmeasured(result: RunResult, places: Iterable[int]) -> RunResult:
    found = list(result.cells)
    for place in places:
        found[place] = replace(found[place], verdict=build.unknown("untested", "no launch finished"))
    return replace(result, cells=tuple(found))


def suspected(verdict: Any = "inconclusive") -> RunResult:
    return last(build.quiet(), verdict, step_time=SLOW)


def program(verdict: CellVerdict, printed: tuple[tuple[str, str], ...] = (), **launch: Any) -> RunResult:
    """Return a run of a program, with one such launch of each version."""
    variant = build.variant("train")
    scenario = replace(variant.scenario, script=None, program=Path("train.py"), printed=printed)
    result = alike(verdict, replace(variant, scenario=scenario))
    facts = {"facts": facts_of(launch.pop("facts"))} if "facts" in launch else {}
    trials = (replace(result.cells[0].trials[0], **facts, **launch),)
    return cells(result, lambda cell: replace(cell, trials=trials))


def hindered(problem: str = "local: connection lost; start dockerd and run again") -> RunResult:
    result = build.quickstart()
    return replace(result, cells=tuple(replace(result.cells[place], problem=problem) for place in (0, 3)))


def not_needed() -> RunResult:
    """Return a run in which a search left out other versions in each variant."""

    def judge(version: str, _: Lane, of: Variant) -> CellVerdict:
        skipped = version in (("6.2.0",) if "random" in str(of) else ("6.1.0", "6.2.0"))
        return build.unknown("untested", "") if skipped else flat()

    ran = with_judge((MULTIDICT, [HERE], build.SIGNAL), judge)
    skip = Skip(by="search", why="not needed: both good")
    return cells(ran, lambda cell: replace(cell, skipped=skip if cell.verdict.verdict == "untested" else None))


def fails_at_import(*, trials: int = 2, setup_bad: bool | None = None, others: CellVerdict | None = None) -> RunResult:
    limits = POP.scenario.limits if setup_bad is None else Limits(setup_bad=setup_bad)
    variant = replace(POP, scenario=replace(POP.scenario, limits=limits))
    failed = replace(build.unknown("untested", "ModuleNotFoundError: No module named 'x'"), trials=trials)
    return with_judge(
        (MULTIDICT, [HERE], [variant]), lambda version, *_: failed if version == "6.3.0" else others or flat()
    )  # fmt: skip


def by_lines(shape: str = "epoch #") -> RunResult:
    """Return a run of a program whose steps are lines that it prints."""
    return cells(
        alike(replace(flat(), per="line")),
        lambda cell: replace(cell, trials=tuple(
            replace(one, last_step=99, facts=facts_of({"step_shape": shape})) for one in cell.trials)),
    )  # fmt: skip


def in_slices() -> RunResult:
    result = alike(told(flat(), "step_time", visible=0.0312))
    first, *rest = result.cells
    sliced = tuple(replace(one, conditions=Conditions(parked=3)) for one in first.trials)
    return replace(result, cells=(replace(first, trials=sliced), *rest))


def noticing(*texts: str, signal: str = "log", of: RunResult | None = None) -> RunResult:
    """Return a run in which the second version prints these lines for the first time."""
    result = of or build.quickstart()
    planned = result.plan.rows[0]
    older, newer = (cell.image.version for cell in planned.cells[:2])
    observed = tuple(
        Observation(
            series=planned.series.name, lane=planned.lane, variant=planned.variant, signal=signal, before=older,
            after=newer, text=text,
        )
        for text in texts
    )  # fmt: skip
    return replace(result, observations=observed)


def beside_blind() -> RunResult:
    slow = SignalVerdict(seen="good", value=0.471, ci=(0.46, 0.48), limit=0.5)
    small = seen(flat(), memory=slow, step_time=build.BLIND)
    return row(lambda version: small if version == "6.3.0" else flat(), verdict="inconclusive")


def two_variants_so_far() -> RunResult:
    early = {("3.7.7", "rfft"), ("3.7.8", "fft")}
    return with_judge(
        (ORJSON, [HERE], build.SIGNAL[::2]),
        lambda version, _lane, of: replace(flat(), provisional=(version, of.params[0][1]) in early),
    )


def blind_in_all_variants() -> RunResult:
    coarse = {"rfft": 0.352, "fft": 0.5}
    return with_judge(
        (ORJSON, [HERE], build.SIGNAL),
        lambda _version, _lane, of: seen(flat(), step_time=replace(build.BLIND, visible=coarse[str(of.params[0][1])])),
    )


def no_limit() -> RunResult:
    number = SignalVerdict(
        seen="none", value=0.5, why="checked for NaN and infinity only: its name does not tell what is worse",
        remedy="`metrics: {損失: {rise: 10%}}` or `drop` judges it",
    )  # fmt: skip
    return alike(replace(flat(), signals={"metrics.損失": number}))


NAN = SignalVerdict(
    seen="suspect",
    why="`loss` was NaN, infinity or a number beyond 1e30 in one launch",
    remedy="more launches would settle it",
)
SLOWING = (
    "3 of 6 launches: RSS grows 0.347 KiB/step (0.161 to 0.587), but the growth is slowing down: "
    "a leak of more than 8.8 KiB/step is ruled out, and a steady one of 9.1 would have been seen (up to step 3998)"
)
UNKNOWN: Mapping[str, RunResult] = {
    "bad cells without a history are still bad": changes(),
    "nothing bad": build.quiet(),
    "a host is gone": build.unreachable(),
    "interrupted at the end": replace(build.quiet(), verdict="interrupted"),
    "interrupted with findings": replace(build.quickstart(), verdict="interrupted"),
    "some could not be decided": replace(build.varied(), verdict="inconclusive"),
    "nothing could be measured": row(lambda _: build.unknown("untested", "no image"), verdict="infrastructure"),
    "nothing was run": row(lambda _: build.unknown("incompatible", "no"), verdict="infrastructure"),
    "a limit that could not be kept": last(build.quiet(), "inconclusive", tail=COARSE),
    "what looks bad is the first that is read": suspected(),
    "what looks bad comes before what is too coarse": last(suspected(), "inconclusive", tail=COARSE),
    "what looks bad comes before what could not run": replace(unmeasured(suspected(), [0]), verdict="infrastructure"),
    "what looks bad comes before the option that ended the sweep": cells(
        suspected(), lambda cell: replace(cell, skipped=Skip(by="stop", why="stopped by --quick"))),
    "what one launch shows is told when interrupted": suspected("interrupted"),
    "no first bad version while the one before it is not measured": unmeasured(suspected("interrupted"), [-2]),
    "no first bad version while no older one is measured": unmeasured(suspected("interrupted"), range(-10, -1)),
    "a NaN in one launch": last(build.quiet(), "inconclusive", **{"metrics.loss": NAN}),
    "a launch that grew is not introduced as nothing": newest(growing(0.0), "inconclusive"),
    "the oldest version may not grow": oldest(growing(0.0), "interrupted"),
    "the oldest version grows": oldest(growing(5.0), "interrupted"),
    "a growth that whole launches do not show":
        oldest(growing(0.161, SLOWING, rate=0.347, trials=6, steps=3998), "inconclusive"),
    "a long clause is cut at a word":
        oldest(told(growing(0.161, f"ValueError{' unmade' * 30}"), "memory", ci=None), "inconclusive"),
    "good so far": alike(replace(seen(flat()), provisional=True, trials=1)),
    "two variants have too few launches": two_variants_so_far(),
    "too coarse, and what helps": alike(seen(flat(), step_time=replace(
        build.BLIND, why="", remedy="more launches (`--trials 13`) would help"))),
    "too few launches are not called coarse": alike(seen(flat(), step_time=SignalVerdict(
        seen="blind", value=1.43e-5, limit=0.1, visible=0.02, why="too few rounds"))),
    "rows that are blind for one reason share a line": blind_in_all_variants(),
    "only the exit code was judged": alike(seen(flat(), **{
        name: SignalVerdict(seen="none", why="the command's exit code decides")
        for name in seen(flat()).signals if name != "outcome"})),
    "a number without a limit": no_limit(),
    "the rest of a program never ran": program(flat(), end="completed", last_step=4000),
    "a program that ended by itself": program(flat(), end="completed", last_step=4000, facts={"run_s": 9.0}),
    "a pattern that no line matched": program(
        seen(flat(), **{"metrics.cost": SignalVerdict(seen="good", value=0.5)}),
        (("loss", "loss: {}"), ("cost", "cost={}")), last_step=500, output=Printed(head="begin\nstep 0 cost=0.500\n")),
    "a program that printed nothing": program(flat(), (("loss", "loss: {}"),), last_step=500, output=Printed()),
    "steps that are lines": by_lines(),
    "steps that are counts of a progress bar": by_lines(" bar by 3"),
    "step times of launches in slices": in_slices(),
    "what a search did not need, by variant": not_needed(),
    "a version fails before its first step": fails_at_import(),
    "a version never started": fails_at_import(trials=0),
    "the matrix says that a failed setup is untested": fails_at_import(setup_bad=False),
    "all versions fail before their first step":
        fails_at_import(others=replace(build.unknown("untested", "no module"), trials=2)),
    "versions without a base share a line and its remedy": row(lambda _: build.unknown(
        "untested", "python:3.11: cannot be pulled; set HARNESS_BASE=harness-base:bookworm")),
    "verdicts that rest on less than was planned": hindered(),
    "launched once": row(lambda _: told(replace(leak(1.4), verdicts=("suspect",), trials=1), "memory", seen="suspect")),
    "a growth just below the limit": row(lambda version: flat() if version < "6.3" else told(
        flat(), "memory", value=0.492, ci=(0.4908, 0.4936)), verdict="ok"),
    "a growth that may be none": row(lambda version: flat() if version < "6.3" else told(
        flat(), "memory", value=0.492, ci=(-0.01, 0.4936)), verdict="ok"),
    "small growth beside a blind signal": beside_blind(),
    "a warning is told once": row(lambda _: flat(), warnings=["a is not b", "a is not b", "c"], verdict="ok"),
    "a new line of output": noticing("Could not load libcudnn; falling back to CPU"),
    "a flood of new lines is cut": noticing(*(f"line {number}" for number in range(100))),
    "a number that changed is named once": noticing("loss 0.3 → 0.4", signal="metrics.loss"),
    "a new error, and nothing else": noticing("step # loss nan", signal="error", of=build.quiet()),
    "another result, and nothing else": noticing(
        "dice 0.906 → 2 in every launch", signal="other_result", of=build.quiet()
    ),
    "a result that lost its reproducibility": changes(change(metric="metrics.loss", verdict="varies", effect=None)),
    "a new error beside a finding": noticing("step # loss nan", signal="error"),
    "a host is gone, and nothing else is bad": replace(build.unreachable(), verdict="ok"),
    "too noisy, and the program ends by itself": cells(
        replace(build.varied(), verdict="inconclusive"), lambda cell: replace(
            cell, trials=tuple(replace(trial, facts=facts_of({"run_s": 2.0})) for trial in cell.trials))),
}  # fmt: skip

CASES: Mapping[str, RunResult] = {**SQUARES, **FAULTS, **CHANGES, **UNKNOWN}


def approve() -> None:
    """Write what is printed of each case."""
    APPROVED.write_text("".join(f"==== {name} ====\n{shown(result)}" for name, result in CASES.items()))
