"""Run results that look real, for the tests of the reports. The figures are those of real regressions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.judge.attribution.cause import attribute
from harness.model import (
    SIGNALS,
    Asked,
    Cell,
    CellResult,
    CellVerdict,
    Effect,
    Failure,
    Finding,
    Host,
    HostState,
    Image,
    Install,
    Lane,
    Look,
    Matrix,
    Plan,
    Probe,
    RunResult,
    RunVerdict,
    Scalar,
    Scenario,
    Series,
    SignalVerdict,
    Trace,
    Trial,
    Trials,
    Variant,
    VerdictName,
    VersionRow,
    Where,
)
from harness.probes.records import Leak, LineRow, LineTable, OpDrift, Probed, SizeTry
from harness.probes.results import ProbedCells

WHERE = Where(file="matrix.yaml", line=3, key="series.multidict")
HERE = Lane(host=Host(name="local", engine="docker", gpus="none", where=WHERE))
OLD = Lane(host=Host(name="old", engine="ssh://lab-3090", gpus=("RTX 3090",), where=WHERE), gpu="RTX 3090")
NEW = Lane(host=Host(name="new", engine="ssh://lab-4090", gpus=("RTX 4090",), where=WHERE), gpu="RTX 4090")

Judge = Callable[[str, Lane, Variant], CellVerdict]


def series(name: str, versions: Iterable[str]) -> Series:
    images = tuple(
        Image(
            series=name,
            version=version,
            source=Install(base="python:3.11-slim", python="3.11", packages=(f"{name}=={version}",)),
            where=WHERE,
        )
        for version in versions
    )
    return Series(name=name, images=images, where=WHERE)


def variant(name: str, **params: Scalar) -> Variant:
    scenario = Scenario(name=name, where=WHERE, script=Path(f"scenarios/{name}.py"))
    return Variant(scenario=scenario, params=tuple(params.items()))


# ---------------------------------------------------------------- verdicts


def flat(excluded: float = 0.017, *, step_ms: float = 0.0143) -> CellVerdict:
    return CellVerdict(
        verdicts=("flat",), trials=3, steps=4000,
        why=f"3 of 3 launches: RSS is flat: a leak of more than {excluded} KiB/step is ruled out (up to step 4000)",
        drift=0.001,
        signals={
            "memory": SignalVerdict(seen="good", value=0.0002, ci=(-0.0005, 0.0009), limit=0.5, visible=excluded),
            **levels(step_ms, 31.2, visible={"step_time": 0.03, "peak_memory": 0.02}),
        },
    )  # fmt: skip


def levels(step_ms: float, peak_mib: float, *, visible: Mapping[str, float]) -> Mapping[str, SignalVerdict]:
    """Return the step time and the peak memory of a version's own launches."""
    step_s, peak_kib = step_ms / 1000, 1024 * peak_mib
    return {
        "step_time": SignalVerdict(
            seen="good", value=step_s, ci=(step_s * 0.98, step_s * 1.02), visible=visible.get("step_time")
        ),
        "peak_memory": SignalVerdict(seen="good", value=peak_kib, visible=visible.get("peak_memory")),
    }


def told(verdict: CellVerdict, name: str, **fields: object) -> CellVerdict:
    """Return the verdict with other figures of one signal."""
    signal = replace(verdict.of(name), **fields)  # type: ignore[arg-type]
    return replace(verdict, signals={**verdict.signals, name: signal})


def leak(rate: float, *, layer: str | None = "native heap", also: Sequence[VerdictName] = ()) -> CellVerdict:
    return CellVerdict(
        verdicts=("leak", *also), trials=3, agreeing=3, steps=4000,
        why=f"3 of 3 launches: RSS grows {rate} KiB/step, at the same rate throughout (up to step 4000)",
        layer=layer, drift=0.02,
        signals={
            "memory": SignalVerdict(seen="bad", value=rate, ci=(rate * 0.998, rate * 1.002), limit=0.5),
            **levels(0.0181, 30 + rate * 4000 / 1024, visible={}),
        },
    )  # fmt: skip


def crash(signal: int | None = 11) -> CellVerdict:
    return CellVerdict(
        verdicts=("crash",), trials=3, failed=3, signal=signal,
        why="crash in 3 of 3 launches: signal 11, died by SIGSEGV after step 1",
    )  # fmt: skip


def unknown(name: VerdictName, why: str) -> CellVerdict:
    return CellVerdict(verdicts=(name,), why=why)


# ---------------------------------------------------------------- signals

_NO_GPU, _NO_ITEMS = (
    SignalVerdict(seen="none", why="no GPU"),
    SignalVerdict(seen="none", why="the scenario has no items"),
)


def seen(verdict: CellVerdict, **others: SignalVerdict) -> CellVerdict:
    """Return the verdict with all its signals, as the judge fills them in: good except for `others`."""
    judged = {name: signal for name, signal in SIGNALS.items() if signal.kind != "observation"}
    known = {name: SignalVerdict(seen="good", limit=signal.limit) for name, signal in judged.items()}
    step_s, peak_kib = verdict.of("step_time").value or 0.0, verdict.of("peak_memory").value or 0.0
    known |= {
        "memory": replace(verdict.of("memory"), seen="bad" if verdict.verdict == "leak" else "good", limit=0.5),
        "step_time": SignalVerdict(seen="good", value=step_s, ci=(step_s * 0.98, step_s * 1.02), limit=0.1,
                                   visible=0.08),
        "peak_memory": SignalVerdict(seen="good", value=peak_kib, ci=(peak_kib, peak_kib), limit=0.1, visible=0.02),
        "setup_time": SignalVerdict(seen="good", value=0.31, ci=(0.29, 0.33), limit=0.5, visible=0.22),
        "open_files": SignalVerdict(seen="good", value=0.0, ci=(-1e-6, 1e-6), limit=0.01, visible=0.001),
        "tail": SignalVerdict(seen="good", value=2 * step_s, limit=1.0, visible=0.4),
        "gpu_peak": _NO_GPU, "pool_peak": _NO_GPU, "throughput": _NO_ITEMS,
    }  # fmt: skip
    return replace(verdict, signals=known | others)


def with_signals(result: RunResult) -> RunResult:
    """Return the same run with signals, as the judge leaves it."""
    cells = tuple(replace(entry, verdict=seen(entry.verdict)) for entry in result.cells)
    return replace(result, cells=cells)


BLIND = SignalVerdict(
    seen="blind", value=0.0143e-3, limit=0.1, visible=0.352,
    why="3 launches on this host are too few: --trials 12, or limits: {step_time: 40%}",
)  # fmt: skip


# ---------------------------------------------------------------- results


@functools.cache
def trace(rate_kib: float, *, steps: int = 400, warmup_kib: float = 900.0) -> Trace:
    step = np.arange(1, steps + 1, dtype=np.float64)
    rss = 30_000 + warmup_kib * (1 - np.exp(-step / 40)) + rate_kib * step
    return Trace(step=step, columns={"rss_kib": np.floor(rss / 4) * 4})


def full_trace(rows: int = 240) -> Trace:
    """Return a trace with the columns and looks of a trial on a machine without a GPU, thinned for reports."""
    noise = np.random.default_rng(1)
    step = np.linspace(1, 4000, rows).round()
    rss = 30_000 + 7.8 * step + noise.normal(0, 64, rows)
    columns = {"rss_kib": rss, "heap_kib": rss - 20_000, "blocks": 40_000 + noise.normal(0, 200, rows),
               "step_s": 2e-5 * noise.lognormal(0, 0.1, rows)}  # fmt: skip
    looks = tuple(
        Look(
            step=count,
            values={
                "rss_kib": 30_000 + 7.8 * count,
                "heap_kib": 10_000 + 7.8 * count,
                "blocks": 40_000.0,
                "threads": 1.0,
            },
        )
        for count in (500, 1000, 2000, 4000)
    )
    return Trace(step=step, columns=columns, looks=looks)


def trial(cell_id: str, number: int, verdict: CellVerdict) -> Trial:
    return Trial(
        cell_id=cell_id,
        number=number,
        key="0" * 64,
        end="crash" if verdict.verdict == "crash" else "completed",
        failure=Failure(signal=verdict.signal),
        message=verdict.why if verdict.verdict == "crash" else "",
        last_step=verdict.steps,
        asked=Asked(steps=4000),
        duration_s=4.25,
        trace=trace(verdict.of("memory").value or 0.0),
    )


def cell_result(cell: Cell, verdict: CellVerdict) -> CellResult:
    trials = tuple(trial(cell.id, launch, verdict) for launch in range(1, verdict.trials + 1))
    problem = verdict.why if verdict.verdict == "untested" else ""
    return CellResult(cell=cell, verdict=verdict, digest="sha256:" + "ab" * 32, trials=trials, problem=problem)


def finding(
    of: Series, lane: Lane, of_variant: Variant, *, after: str, before: str | None, **fields: object
) -> Finding:
    base = Finding(
        series=of.name, lane=lane, variant=of_variant, metric="memory", kind="first_bad", before=before, after=after,
        effect=Effect(value=7.838, unit="KiB/step", ci=(7.83, 7.85)), verdict="leak", confirmed=True,
    )  # fmt: skip
    return replace(base, **fields)  # type: ignore[arg-type]


def with_findings(result: RunResult, findings: Iterable[Finding]) -> RunResult:
    """Return the run with these findings instead of its own, and their attribution."""
    found = tuple(findings)
    return replace(result, findings=found, attribution=attribute(result.plan, result.cells, found))


def run(
    histories: Sequence[tuple[Series, Sequence[Lane], Sequence[Variant]]],
    judge: Judge,
    *,
    verdict: RunVerdict = "regression",
    findings: Sequence[Finding] = (),
    warnings: Sequence[str] = (),
    problems: Mapping[str, str] | None = None,
) -> RunResult:
    """Return a run over every version, lane and variant of each history; `judge` gives the verdict of each cell."""
    rows = tuple(
        VersionRow(
            series=of, lane=lane, variant=one,
            cells=tuple(Cell(image=image, lane=lane, variant=one) for image in of.images),
        )
        for of, lanes, variants in histories for lane in lanes for one in variants
    )  # fmt: skip
    hosts = {lane.host.name: lane.host for _, lanes, _ in histories for lane in lanes}
    matrix = Matrix(
        name="quickstart", path=Path("matrix.yaml"), series=tuple(of for of, _, _ in histories),
        hosts=tuple(hosts.values()), scenarios=tuple({one.scenario: 0 for _, _, many in histories for one in many}),
    )  # fmt: skip
    plan = Plan(matrix=matrix, rows=rows, trials=Trials(), seed=1)
    cells = tuple(cell_result(cell, judge(cell.image.version, cell.lane, cell.variant)) for cell in plan.cells)
    return RunResult(
        matrix="quickstart",
        verdict=verdict,
        started="2025-03-01T12:00:00Z",
        duration_s=200.0,
        hosts=tuple(HostState(host=host, problem=(problems or {}).get(name)) for name, host in hosts.items()),
        plan=plan,
        cells=cells,
        findings=tuple(findings),
        attribution=attribute(plan, cells, findings),
        directory=Path("reports/quickstart/20250301T120000Z-1a2b"),
        warnings=tuple(warnings),
    )


# ---------------------------------------------------------------- whole runs

MULTIDICT = series(
    "multidict", ["6.0.5", "6.1.0", "6.2.0", "6.3.0", "6.3.1", "6.3.2", "6.4.4", "6.5.0", "6.6.3", "6.6.4"]
)
POP = variant("multidict_pop")
RATES = {"6.3.0": 7.838, "6.3.1": 7.839, "6.5.0": 2.816, "6.6.3": 2.816}


def quickstart() -> RunResult:
    """Return a run of one lane, one variant and ten versions: a leak, its fix, and another leak."""

    def judge(version: str, _lane: Lane, _variant: Variant) -> CellVerdict:
        return leak(RATES[version]) if version in RATES else flat()

    second = Effect(value=2.816, unit="KiB/step", ci=(2.815, 2.817))
    changes = [
        finding(MULTIDICT, HERE, POP, before="6.2.0", after="6.3.0"),
        finding(MULTIDICT, HERE, POP, before="6.3.1", after="6.3.2", kind="first_fixed"),
        finding(MULTIDICT, HERE, POP, before="6.4.4", after="6.5.0", effect=second),
        finding(MULTIDICT, HERE, POP, before="6.6.3", after="6.6.4", kind="first_fixed", effect=second),
    ]
    return run([(MULTIDICT, [HERE], [POP])], judge, findings=changes)


TENSORFLOW = series("tensorflow", ["2.14.1", "2.15.1", "2.16.2", "2.17.1"])
ZEROS = variant("eager_zeros")
ZEROS_RATES = {"2.14.1": 0.121, "2.15.1": 0.122, "2.16.2": 0.681, "2.17.1": 0.679}


def worsening() -> RunResult:
    """Return a run with a leak in every version that becomes much worse in one, with slower steps and a higher peak."""
    changes = [
        finding(TENSORFLOW, HERE, ZEROS, before=None, after="2.14.1", kind="bad_from_start", effect=rate(0.121)),
        finding(TENSORFLOW, HERE, ZEROS, before="2.15.1", after="2.16.2", kind="worse", effect=rate(0.681)),
        finding(TENSORFLOW, HERE, ZEROS, before="2.15.1", after="2.16.2", metric="peak_memory", verdict="more memory",
                effect=Effect(value=1.39, unit="ratio", ci=(1.35, 1.43)), p=0.00002, consequence_of="memory"),
        finding(TENSORFLOW, HERE, ZEROS, before="2.15.1", after="2.16.2", metric="step_time", verdict="slower",
                effect=Effect(value=1.7, unit="ratio", ci=(1.6, 1.8)), p=0.00002, consequence_of="memory"),
    ]  # fmt: skip
    return run([(TENSORFLOW, [HERE], [ZEROS])], lambda version, *_: leak(ZEROS_RATES[version]), findings=changes)


def rate(value: float) -> Effect:
    return Effect(value=value, unit="KiB/step", ci=(0.998 * value, 1.002 * value))


LRN = series("onnxruntime", ["1.19.2", "1.20.0", "1.20.1", "1.21.0", "1.21.1"])
LRN_STEP = variant("ort_lrn", size=64)
LRN_MS = {"1.19.2": 0.4054, "1.20.0": 0.4027, "1.20.1": 0.4096, "1.21.0": 2.303, "1.21.1": 2.249}
ORJSON = series("orjson", ["3.7.7", "3.7.8", "3.7.9", "3.7.10"])
DELETED = variant("orjson_deleted")
NGC = series("ngc", ["20.12-tf1-py3", "21.08-tf1-py3", "21.09-tf1-py3", "21.10-tf1-py3", "22.12-tf1-py3"])
SIGNAL = [variant("signal", op=op, input=given) for op in ("rfft", "fft") for given in ("random", "constant")]


def varied() -> RunResult:
    """Return a run with slower steps, a crash in one version only, a gap that could not run, two lanes, and unknown
    cells.
    """
    changes = [
        finding(LRN, HERE, LRN_STEP, before="1.20.1", after="1.21.0", metric="step_time", verdict="slower",
                effect=Effect(value=5.62, unit="ratio", ci=(5.5, 5.7)), p=0.00002),
        finding(ORJSON, HERE, DELETED, before="3.7.8", after="3.7.9", metric="outcome", verdict="crash",
                effect=Effect(value=1, unit="failures", ci=(0.292, 1)), p=0.0119),
        finding(ORJSON, HERE, DELETED, before="3.7.9", after="3.7.10", metric="outcome", verdict="crash",
                kind="first_fixed", effect=Effect(value=1, unit="failures", ci=(0.292, 1)), p=0.1),
        *(finding(NGC, lane, one, before="21.08-tf1-py3", after="22.12-tf1-py3",
                  untestable=("21.09-tf1-py3", "21.10-tf1-py3"),
                  effect=Effect(value=24.1 if lane is NEW else 23.9, unit="KiB/step", ci=(23.8, 24.3)))
          for lane in (OLD, NEW) for one in SIGNAL if dict(one.params)["input"] == "random"),
    ]  # fmt: skip
    return run(
        [(LRN, [HERE], [LRN_STEP]), (ORJSON, [HERE], [DELETED]), (NGC, [OLD, NEW], SIGNAL)],
        _judge_varied,
        findings=changes,
        warnings=["host local: load 1.9 while it measured; close other programs and run again"],
    )


def _judge_varied(version: str, lane: Lane, of: Variant) -> CellVerdict:
    if of.scenario.name == "ort_lrn":
        return flat(step_ms=LRN_MS[version])
    if of.scenario.name == "orjson_deleted":
        return crash() if version == "3.7.9" else flat()
    if version.startswith("20.12") and lane == NEW:
        return unknown("incompatible", "CUDA 11.1 knows no sm_89 (RTX 4090); it needs 11.8 or later")
    if version.startswith(("21.09", "21.10")):
        return unknown("untested", "manifest unknown; push it or take it out")
    if version.startswith("21.08") and dict(of.params) == {"op": "fft", "input": "constant"}:
        return replace(
            unknown("inconclusive", "8 of 8 launches: RSS is too noisy to tell (up to step 4000)"), trials=8, steps=4000
        )
    leaks = version.startswith("22.12") and dict(of.params)["input"] == "random"
    return leak(24.1, also=["slowdown"]) if leaks else flat()


def signalled() -> RunResult:
    """Return a run with all states of signals: good, bad in a level, a growth and a value, blind, and good so far."""
    files = SignalVerdict(seen="bad", value=1.0, ci=(0.99, 1.01), limit=0.01)
    slow = SignalVerdict(seen="bad", value=2.1, ci=(2.0, 2.2), limit=0.5, visible=0.22)
    by_version = {
        "6.2.0": replace(told(seen(flat(), open_files=files), "memory", visible=None), verdicts=("growth",)),
        "6.3.0": seen(flat(), setup_time=slow),
        "6.3.1": seen(leak(7.838), step_time=replace(BLIND, seen="bad", value=0.0181e-3)),
        "6.3.2": replace(seen(flat()), provisional=True, trials=1),
        "6.4.4": replace(seen(flat(), **{"metrics.loss": SignalVerdict(seen="bad")}), verdicts=("nan",)),
    }

    def judge(version: str, _lane: Lane, of: Variant) -> CellVerdict:
        if of is POP:
            return by_version.get(version, seen(flat()))
        return seen(flat(), step_time=BLIND)

    slower = Effect(value=6.77, unit="ratio", ci=(6.1, 7.2))
    changes = [
        finding(MULTIDICT, HERE, POP, before="6.1.0", after="6.2.0", metric="open_files", verdict="growth",
                effect=Effect(value=1.0, unit="files/step", ci=(0.99, 1.01))),
        finding(MULTIDICT, HERE, POP, before="6.2.0", after="6.3.0", metric="setup_time", verdict="slower",
                effect=slower, p=0.0002),
        finding(MULTIDICT, HERE, POP, before="6.3.0", after="6.3.1", metric="setup_time", verdict="slower",
                kind="first_fixed", effect=slower, p=0.0002),
    ]  # fmt: skip
    return run([(MULTIDICT, [HERE], [POP, variant("multidict_read")])], judge, findings=changes)


def quiet() -> RunResult:
    return run([(MULTIDICT, [HERE], [POP])], lambda *_: flat(), verdict="ok")


def unreachable() -> RunResult:
    """Return a run in which one of two hosts is gone: nothing is bad, but the lost host is unknown."""
    problem = "ssh://lab-3090: connection refused; start dockerd there and try again"
    return run(
        [(NGC, [OLD, NEW], SIGNAL[:1])],
        lambda _version, lane, _variant: unknown("untested", problem) if lane == OLD else flat(),
        verdict="infrastructure",
        problems={"old": problem},
    )


def large(versions: int = 50, variants: int = 24) -> RunResult:
    """Return a run with as many columns and rows as real users have."""
    history = series("wheel", [f"1.{number}.0" for number in range(versions)])
    first = min(31, versions - 1)
    many = [variant("signal", op=f"op{number % 6}", input=f"in{number // 6}") for number in range(variants)]

    def judge(version: str, _lane: Lane, of: Variant) -> CellVerdict:
        return leak(24.1) if int(version.split(".")[1]) >= first and of.params[0][1] == "op1" else flat()

    return run(
        [(history, [HERE], many)],
        judge,
        findings=[finding(history, HERE, one, before=f"1.{first - 1}.0", after=f"1.{first}.0")
                  for one in many if one.params[0][1] == "op1"],
    )  # fmt: skip


def probed(**found: object) -> Probed:
    cell = quickstart().cells[0].cell
    return Probed(cell=cell, **found)  # type: ignore[arg-type]


def found(name: str = "tf.rfft") -> tuple[Probed, ...]:
    drift = OpDrift(op=name, kind="RFFT", ms=(0.2, 3.0), ratio=15.0, bytes=5 << 20, expected_bytes=5 << 20)
    row = LineRow(line=7, text=f"    keep({name})", mem_kib=2048.0, increment_kib=1024.0, occurrences=20, hits=20,
                  time_s=0.002)  # fmt: skip
    leak = Leak(kind="DefinitelyLost", stack=("???: none", name), bytes=4096, blocks=30, bytes_a_step=128.0,
                blocks_a_step=1.0)  # fmt: skip
    tries = (SizeTry(size=8, fits=True, end="completed", peak_rss_kib=1 << 20),
             SizeTry(size=16, fits=False, end="oom", message=name))  # fmt: skip
    return (
        probed(probe=Probe(name="optrace", steps=0, settings=(("at", [10, 120]),)), ops=(drift,)),
        probed(
            probe=Probe(name="lines", steps=40), functions=(LineTable(name="step", file="/x/signal.py", rows=(row,)),)
        ),
        probed(probe=Probe(name="valgrind", steps=3), leaks=(leak,), errors={name: 2}),
        probed(probe=Probe(name="largest", steps=1, settings=(("param", "batch"),)), tries=tries, problem=name),
        probed(probe=Probe(name="artifacts", steps=1), files={f"{name}.svg": ""}),
    )


def with_probes(name: str = "tf.rfft") -> RunResult:
    return replace(quickstart(), added=(ProbedCells(results=found(name)),))
