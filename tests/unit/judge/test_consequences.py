"""One cause, one finding: otherwise a user reads it three times, or looks in the wrong place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.attribution.group_faults import with_consequences
from harness.model import SIGNALS, CellVerdict, Effect, Finding, SignalVerdict
from harness.model.attributed import episodes_of, mostly_fixed
from tests.players import build

VERSIONS = [image.version for image in build.MULTIDICT.images]
ORDER = {version: place for place, version in enumerate(VERSIONS)}
LEAK = Effect(value=7.8, unit="KiB/step", ci=(7.7, 7.9))


def ratio(value: float, *, spread: float = 1.02) -> Effect:
    return Effect(value=value, unit="ratio", ci=(value / spread, value * spread))


def change(metric: str, effect: Effect | None, *, before: int | None = 2, after: int = 3, **fields: object) -> Finding:
    last = None if before is None else VERSIONS[before]
    return build.finding(
        build.MULTIDICT,
        build.HERE,
        build.POP,
        before=last,
        after=VERSIONS[after],
        **{"metric": metric, "verdict": "", "effect": effect, **fields},  # type: ignore[arg-type]
    )


def causes(*findings: Finding) -> list[str]:
    return [one.consequence_of for one in with_consequences(findings, VERSIONS)]


def test_a_leak_that_raises_the_peak_and_slows_the_steps_is_one_finding() -> None:
    assert causes(change("memory", LEAK), change("peak_memory", ratio(1.39)), change("step_time", ratio(1.7))) == [
        "", "memory", "memory",
    ]  # fmt: skip


@pytest.mark.parametrize(("more_kib", "cause"), [(30_000.0, "memory"), (2_000_000.0, "")])
def test_a_peak_that_a_leak_is_too_small_for_is_a_fault_of_its_own(more_kib: float, cause: str) -> None:
    """A leak of 7.8 KiB/step does not take 2 GB in 4,000 steps; a user who mends it still lacks the memory."""
    known = {
        version: replace(
            build.flat(),
            steps=4000,
            signals={"peak_memory": SignalVerdict(seen="good", value=60_000.0 + (0.0 if place < 3 else more_kib))},
        )
        for place, version in enumerate(VERSIONS)
    }
    found = (change("memory", LEAK), change("peak_memory", ratio(2.0)))
    assert [each.consequence_of for each in with_consequences(found, VERSIONS, known)] == ["", cause]


@pytest.mark.parametrize(("new_ms", "cause"), [(1.8, "output"), (4.0, "")])
@pytest.mark.parametrize("printed", [0.0, 10.0])
def test_steps_that_are_slower_by_what_they_print_are_no_fault_of_their_own(
    new_ms: float, cause: str, printed: float
) -> None:
    """A version that printed 1,000 bytes a step in place of 10 was also said to be slower, as a second fault. What
    takes longer than printing may take has another cause."""
    found = (change("output", ratio(100)), change("step_time", ratio(new_ms)), change("run_time", ratio(1.3)))
    known = {
        version: replace(
            build.flat(),
            signals={
                "output": SignalVerdict(seen="good", value=printed if place < 3 else printed + 1000.0),
                "step_time": SignalVerdict(seen="good", value=0.001 * (1 if place < 3 else new_ms)),
            },
        )
        for place, version in enumerate(VERSIONS)
    }
    told = [one.consequence_of for one in with_consequences(found, VERSIONS, known)]
    assert told == ["", cause, cause or "step_time"]


@pytest.mark.parametrize(("rate", "drift", "cause"), [(0.7, 0.0, ""), (0.7, 1.2, "memory"), (2000.0, 0.0, "memory")])
def test_a_leak_explains_only_what_growth_may_cost(rate: float, drift: float, cause: str) -> None:
    """A leak of 0.7 KiB a step hid that every step, from the first on, took three times as long."""
    known = {
        version: replace(
            build.flat(),
            drift=drift if place >= 3 else 0.0,
            signals={"step_time": SignalVerdict(seen="good", value=0.001 * (1 if place < 3 else 3))},
        )
        for place, version in enumerate(VERSIONS)
    }
    found = change("memory", Effect(value=rate, unit="KiB/step")), change("step_time", ratio(3))
    assert [one.consequence_of for one in with_consequences(found, VERSIONS, known)] == ["", cause]


@pytest.mark.parametrize(("kib", "cause"), [(400.0, "open_files"), (500_000.0, "")])
def test_open_files_explain_only_the_memory_that_files_take(kib: float, cause: str) -> None:
    """Eighty open files explained 500 KiB a step."""
    files, memory = Effect(value=0.5, unit="files/step"), Effect(value=kib, unit="KiB/step")
    assert causes(change("open_files", files), change("memory", memory)) == ["", cause]


def test_a_slower_setup_is_not_also_a_slower_first_step() -> None:
    assert causes(change("first_step", ratio(3)), change("setup_time", ratio(3))) == ["setup_time", ""]


def test_a_tail_that_its_cause_cannot_explain_is_a_finding_of_its_own() -> None:
    steps = change("step_time", ratio(1.1, spread=1.01))
    assert causes(steps, change("tail", ratio(50))) == ["", ""]
    assert causes(steps, change("tail", ratio(1.15))) == ["", "step_time"]


def test_another_version_or_another_end_is_another_fault() -> None:
    leak, peak = change("memory", LEAK), change("peak_memory", ratio(1.4))
    assert causes(leak, change("peak_memory", ratio(1.4), before=4, after=5)) == ["", ""]
    fixed = change("memory", LEAK, before=4, after=5, kind="first_fixed")
    assert causes(leak, fixed, peak) == ["", "", ""], "the peak outlasts the leak"
    lower = change("peak_memory", ratio(0.7), before=4, after=5, kind="first_fixed")
    assert causes(leak, fixed, peak, lower) == ["", "", "memory", "memory"]


def test_intervals_that_overlap_may_be_one() -> None:
    wide = change("peak_memory", ratio(1.4), before=1, after=4)
    assert causes(change("memory", LEAK), wide) == ["", "memory"]


def test_what_got_worse_explains_what_began_there() -> None:
    start = change("memory", LEAK, before=None, after=0, kind="bad_from_start")
    worse = change("memory", LEAK, kind="worse")
    assert causes(start, worse, change("peak_memory", ratio(1.4))) == ["", "", "memory"]
    assert causes(start, change("peak_memory", ratio(1.4))) == ["", ""]


def test_the_first_cause_is_named_and_of_two_that_explain_each_other_the_more_special() -> None:
    shm = Effect(value=8.0, unit="KiB/step", ci=(7.9, 8.1))
    assert causes(change("memory", LEAK), change("shm", shm), change("peak_memory", ratio(1.4))) == ["shm", "", "shm"]
    small = Effect(value=0.8, unit="KiB/step", ci=(0.7, 0.9))
    assert causes(change("memory", LEAK), change("shm", small)) == ["", "memory"], "it cannot fill memory that fast"


def test_a_repair_that_ends_two_episodes_is_a_consequence_only_of_both() -> None:
    leak = [change("memory", LEAK), change("memory", LEAK, before=8, after=9, kind="first_fixed")]
    once = change("peak_memory", ratio(1.4))
    again = change("peak_memory", ratio(1.4), before=5, after=6)
    lower = change("peak_memory", ratio(0.5), before=8, after=9, kind="first_fixed")
    assert causes(*leak, once, again, lower) == ["", "", "memory", "", ""]


def test_the_scenarios_own_numbers_explain_nothing() -> None:
    assert causes(change("metrics.loss", ratio(2)), change("step_time", ratio(2))) == ["", ""]


def test_no_chain_of_causes_is_a_circle() -> None:
    """In a pair of signals that name each other, the place in the table decides; a longer circle would never end."""

    def reach(name: str, path: tuple[str, ...]) -> None:
        for other in SIGNALS[name].explains:
            pair = len(path) > 1 and other == path[-2]
            assert pair or other not in path
            if not pair:
                reach(other, (*path, other))

    for name in SIGNALS:
        reach(name, (name,))


METRICS = sorted(SIGNALS)


def levels(within: float | None = None, **figures: str) -> dict[str, CellVerdict]:
    """Return the verdicts on the versions with these figures, which a space separates; the last one stays. They are
    known `within` this much, if it is given."""
    columns = {name: [float(figure) for figure in told.split()] for name, told in figures.items()}

    def seen(place: int) -> dict[str, SignalVerdict]:
        shown = {name: own[min(place, len(own) - 1)] for name, own in columns.items()}
        return {
            name: SignalVerdict(
                seen="bad", value=value, limit=0.1, ci=None if within is None else (value - within, value + within)
            )
            for name, value in shown.items()
        }

    return {version: build.seen(build.flat(), **seen(place)) for place, version in enumerate(VERSIONS)}


def test_what_ends_where_its_cause_is_mostly_repaired_is_its_consequence() -> None:
    """opencv 4.12 took 109 times as long, 4.13 still 1.5 times, 4.14 was as before; the CPU time, fixed in 4.13, was a
    fault of its own that contradicted the one before."""
    steps, fixed = (
        change("step_time", ratio(109)),
        change("step_time", ratio(0.67), before=4, after=5, kind="first_fixed"),
    )
    cpu, lower = change("cpu_time", ratio(100)), change("cpu_time", ratio(0.01), before=3, after=4, kind="first_fixed")
    all_of_them = (steps, fixed, cpu, lower)
    assert causes(*all_of_them) == ["", "", "", ""], "where no figure is known"
    mostly = levels(step_time="1 1 1 109 1.5 1 1", cpu_time="1 1 1 100 1.1 1 1")
    assert [one.consequence_of for one in with_consequences(all_of_them, VERSIONS, mostly)] == [
        "",
        "",
        *2 * ["step_time"],
    ]
    hardly = levels(step_time="1 1 1 109 40 1 1", cpu_time="1 1 1 100 1.1 1 1")
    assert [one.consequence_of for one in with_consequences(all_of_them, VERSIONS, hardly)] == ["", "", "", ""]


@pytest.mark.parametrize(
    ("figures", "mild"),
    [
        ("1 1 1 109 1.5 1.4", 4), ("1 1 1 109 40 40", None), ("1 1 1 109 109 1.5 1", 5),
        ("1 1 1 2 1.18 1.18 1.5", None), ("1 1 1 2 1.5 1.18 1.18", 5), ("1 1 1 109 0 1.5", 5), ("1 1 1 1 1 1", None),
        ("0 0 0 5 1 1", None),
    ],
)  # fmt: skip
def test_three_quarters_of_a_change_as_a_log_are_most_of_it(figures: str, mild: int | None) -> None:
    (episode,) = episodes_of([change("step_time", ratio(109))], ORDER)
    assert mostly_fixed(episode, levels(step_time=figures), ORDER) == mild


def test_a_figure_that_may_be_that_of_the_version_before_is_no_repair() -> None:
    """Two versions with the same code took 1.49 and 1.29 ms under load: "most of it fixed" in the second one."""
    (episode,) = episodes_of([change("step_time", ratio(2.1))], ORDER)
    assert mostly_fixed(episode, levels(step_time="1 1 1 2.5 1.49 1.2", within=0.1), ORDER) == 5
    assert mostly_fixed(episode, levels(step_time="1 1 1 2.5 1.49 1.2", within=0.2), ORDER) is None
    (episode,) = episodes_of([change("throughput", ratio(0.4))], ORDER)
    assert mostly_fixed(episode, levels(throughput="9 9 9 4 7 7.9", within=0.1), ORDER) == 5
    assert mostly_fixed(episode, levels(throughput="9 9 9 4 7 7.9", within=0.6), ORDER) is None


def test_a_leak_is_mostly_fixed_as_measured_from_the_limit() -> None:
    (episode,) = episodes_of([change("memory", LEAK)], ORDER)
    assert mostly_fixed(episode, levels(memory="0 0 0 7.8 0.2 0.2 0"), ORDER) == 4
    assert mostly_fixed(episode, levels(memory="0 0 0 7.8 2 2 2"), ORDER) is None


def test_a_version_whose_growth_is_not_known_repairs_nothing() -> None:
    """It counted as grown by the limit: a server that left a file open at each request had `most of it fixed` in the
    version whose only launch ended early."""
    (episode,) = episodes_of([change("open_files", LEAK)], ORDER)
    known = levels(open_files="0 0 0 1")
    unknown = {
        name: build.seen(build.flat(), open_files=SignalVerdict(seen="none", limit=0.01)) for name in VERSIONS[4:]
    }
    assert mostly_fixed(episode, {**known, **unknown}, ORDER) is None


@given(
    st.lists(
        st.builds(
            lambda metric, before, value: change(metric, ratio(value), before=before, after=before + 1),
            st.sampled_from(METRICS),
            st.integers(0, 8),
            st.floats(1.05, 40),
        ),
        max_size=8,
    )
)
def test_what_is_explained_has_a_cause_that_is_not(findings: list[Finding]) -> None:
    told = with_consequences(findings, VERSIONS)
    assert [replace(one, consequence_of="") for one in told] == findings
    for one in told:
        if one.consequence_of:
            roots = [each for each in told if each.metric == one.consequence_of and each.after == one.after]
            assert any(not root.consequence_of for root in roots)


@pytest.mark.parametrize("turn", range(4))
def test_the_order_of_findings_makes_no_difference(turn: int) -> None:
    found = [change("memory", LEAK), change("peak_memory", ratio(1.4)), change("tail", ratio(2)), change("shm", LEAK)]
    turned = found[turn:] + found[:turn]
    told = {one.metric: one.consequence_of for one in with_consequences(turned, VERSIONS)}
    assert told == {"memory": "shm", "peak_memory": "shm", "tail": "shm", "shm": ""}


@pytest.mark.parametrize(("run_s", "causes"), [(1.3, ["", "end_time"]), (5.5, ["run_time", ""])])
def test_a_slow_end_does_not_explain_a_run_that_is_longer_by_much_more(run_s: float, causes: list[str]) -> None:
    """A program that printed four lines took ten times as long. The headline said only that it takes longer to end,
    which is the time after its last line, and a fifth of the difference."""
    known = {
        version: replace(
            build.flat(),
            signals={
                "end_time": SignalVerdict(seen="good", value=0.13 if place < 3 else 1.3),
                "run_time": SignalVerdict(seen="good", value=0.65 if place < 3 else 0.65 + run_s),
            },
        )
        for place, version in enumerate(VERSIONS)
    }
    found = (change("end_time", ratio(10)), change("run_time", ratio(1 + run_s / 0.65)))
    assert [each.consequence_of for each in with_consequences(found, VERSIONS, known)] == causes


def test_a_printed_rate_that_falls_with_more_processor_time_is_no_second_fault() -> None:
    """Where the run time was too noisy to judge, shapely was accused twice of the same slower calls."""
    assert causes(change("cpu_time", ratio(1.33)), change("metrics.throughput", ratio(0.7))) == ["", "cpu_time"]
