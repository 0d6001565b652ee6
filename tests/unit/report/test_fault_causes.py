"""Whose fault it is, as people read it: one sentence for every case, which never claims more than is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.judge.attribution.cause import attribute
from harness.model import SIGNALS, CellResult, CellVerdict, Effect, Lane, Observation, RunResult, SignalVerdict, Variant
from harness.model.attributed import Episode
from harness.report.text import fault_sentences, finding_words
from harness.report.text.fault_sentences import params_clause, rule_evidence, rule_text
from harness.report.text.headline import sentence
from tests.players import build, faults
from tests.players.faults import NEW, OLD, SIGNAL, Square, lane, run

TORCH = build.variant("torch_ops")
LEAKS = "signal_ops leaks 24 KiB/step"


@pytest.mark.parametrize(
    "bad_version",
    [
        build.unknown("untested", "ModuleNotFoundError: No module named 'no_such_module'"),
        replace(build.seen(build.flat()), provisional=True, trials=1),
        build.seen(build.flat(), memory=SignalVerdict(seen="blind", limit=0.5, visible=3.0)),
    ],
    ids=["it could not run there", "one of two launches", "blind"],
)
def test_what_was_not_seen_good_in_the_bad_version_is_not_said_to_stay_good(bad_version: CellVerdict) -> None:
    """It said "slow, missing and m stay good" of three variants that were never found good."""
    drawn = run({NEW: "ggb"}, controls=[TORCH])
    newest = drawn.plan.matrix.series[0].images[-1].version

    def judge(entry: CellResult) -> CellResult:
        told = build.seen(entry.verdict)
        if (entry.cell.variant, entry.cell.image.version) == (TORCH, newest):
            told = bad_version
        return replace(entry, verdict=told)

    assert "torch_ops stays good" in sentence(drawn)
    assert "stays good" not in sentence(faults.judged(replace(drawn, cells=tuple(map(judge, drawn.cells)))))


@pytest.mark.parametrize(
    ("signal", "before", "place", "stays"),
    [
        ("other_result", "20.12", NEW, False),
        ("step_time", "22.12", NEW, True),  # cards of different speed
        ("other_result", "22.12", OLD, True),
        ("log", "20.12", NEW, True),
    ],
)
def test_a_scenario_with_something_to_look_at_is_not_said_to_stay_good(
    signal: str, before: str, place: Lane, *, stays: bool
) -> None:
    """It said that `result` stays good on the host on which, as the next sentence said, it gives another result."""
    drawn = run({OLD: "ggg", NEW: "ggb"}, controls=[TORCH])
    told = Observation(
        series=drawn.plan.rows[0].series.name, lane=place, variant=TORCH, signal=signal, before=before, after="22.12",
        text="loss 1 → 2",
    )  # fmt: skip
    causes = attribute(drawn.plan, drawn.cells, drawn.findings, [told])
    assert ("torch_ops stays good" in sentence(replace(drawn, attribution=causes))) is stays


@pytest.mark.parametrize(
    ("letters", "told"), [("ubu", "in 21.08 at least,"), ("ubg", "in 21.08 (fixed in 22.12),"), ("uub", "in 22.12,")]
)
def test_a_version_between_unknown_ones_is_not_said_to_be_the_only_bad_one(letters: str, told: str) -> None:
    """`crashes in 15 % of launches in 1.16.0` counted one failure in sixteen launches of 1.17.0, too."""
    assert sentence(run({NEW: letters})).startswith(f"{LEAKS} {told}")


# ---------------------------------------------------------------- rules


def rule_of(bad: list[Variant], every: list[Variant]) -> RunResult:
    return run({NEW: "ggb"}, variants=every, bad=lambda one: one in bad)


AB = [build.variant("s", a=a, b=b) for a in (1, 2, 3) for b in (True, False)]


@pytest.mark.parametrize(
    ("bad", "text", "spoken"),
    [
        (AB[:2], "a = 1", "when a is 1"),
        (AB[:1], "a = 1 and b = true", "when a is 1 and b is true"),
        ([*AB[:2], AB[2], AB[4]], "a = 1 or b = true", "when a is 1, or b is true"),
        (AB[:4], "a in {1, 2}", "when a is 1 or 2"),
        (AB, None, "in all 6 variants"),
    ],
)  # fmt: skip
def test_a_rule_is_told_as_a_condition_and_in_the_sentence(bad: list[Variant], text: str | None, spoken: str) -> None:
    one = faults.only(rule_of(bad, AB))
    assert rule_text(one.rule) == text
    assert params_clause(one) == spoken


def test_what_no_small_rule_tells_apart_is_said_to_be_so() -> None:
    every = [build.variant("s", a=a, b=b, c=c, d=d) for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1)]
    odd = [one for one in every if sum(int(value or 0) for _, value in one.params) % 2]
    one = faults.only(rule_of(odd, every))
    assert one.unruly
    assert params_clause(one) == "in 8 variants, with no simple rule"


def test_all_that_ran_is_not_all_that_was_asked() -> None:
    result = run({NEW: "ggb"}, variants=AB[:3])
    dropped = [
        replace(entry, verdict=build.unknown("untested", "no time")) if entry.cell.variant == AB[2] else entry
        for entry in result.cells
    ]
    one = faults.only(faults.judged(replace(result, cells=tuple(dropped))))
    assert params_clause(one) == "in every variant that can tell (2 of 3)"
    assert params_clause(faults.only(run({NEW: "ggb"}, variants=AB[:2]))) == "in both variants"


def test_params_that_always_came_together_are_both_named() -> None:
    two = [build.variant("s", a=1, b="x"), build.variant("s", a=2, b="y")]
    one = faults.only(rule_of(two[:1], two))
    assert params_clause(one) == "when a is 1 (or when b is x: the two always occur together)"


def test_exceptions_and_what_never_ran_are_listed() -> None:
    every = [build.variant("s", a=a, b=b, c=c) for a in range(4) for b in range(4) for c in range(2)]
    bad = [one for one in every if dict(one.params)["a"] == 0 and one != every[0]] + [every[-1]]
    one = faults.only(rule_of(bad, every))
    assert one.rule is not None
    assert params_clause(one) == "when a is 0 (2 exceptions)"
    assert rule_evidence(replace(one.rule, never_run=tuple(every[:5]))).endswith(
        "exceptions: a=3 b=3 c=1; a=0 b=0 c=0; 5 do not rule it out: a=0 b=0 c=0; a=0 b=0 c=1; a=0 b=1 c=0; and 2 more"
    )


# ---------------------------------------------------------------- on top of every report


POOL = replace(
    OLD, host=replace(OLD.host, name="farm", engine="ssh://gpu1, ssh://gpu2", pool=("ssh://gpu1", "ssh://gpu2"))
)


def in_a_pool(square: Square, machines: dict[str, str]) -> RunResult:
    """Return the run of a table whose rows ran on these machines, by the value of `input`."""
    result = run(square, variants=SIGNAL)

    def ran(entry: CellResult) -> CellResult:
        machine = machines[str(dict(entry.cell.variant.params)["input"])] if entry.cell.lane.host.pool else None
        trials = [replace(trial, fingerprint={"machine": machine} if machine else {}) for trial in entry.trials]
        return replace(entry, trials=tuple(trials))

    return faults.judged(replace(result, cells=tuple(map(ran, result.cells))))


ON_GPU2 = {"random": "gpu2", "variable": "gpu2", "zeros": "gpu1", "constant": "gpu1"}


def test_a_machine_of_a_pool_that_alone_has_a_fault_is_suspected_not_the_params_of_its_rows() -> None:
    """They were said to be bad when input is random or variable, which a broken machine happened to run."""
    text = sentence(in_a_pool({POOL: "bbb"}, ON_GPU2))
    assert (
        "everything ran on gpu2, where nothing is good, so gpu2 itself may be at fault; to settle it, take it out of "
        "the pool and sweep again"
    ) in text
    spread = {**ON_GPU2, "variable": "gpu1"}
    assert "itself may be at fault" not in sentence(in_a_pool({POOL: "bbb"}, spread))


AGAIN, BESIDE, SLOT = lane("third", "RTX 4090"), lane("new", "RTX 3090"), lane("new", "RTX 4090 GPU-2")
BARE, OTHER = lane("bare", None), lane("other", None)


@pytest.mark.parametrize(
    ("bad", "good", "told"),
    [
        ([NEW], [OLD], "either the RTX 4090 or its host (new)"),
        ([NEW], [BESIDE], "the RTX 4090"),
        ([NEW], [OLD, BESIDE], "the RTX 4090"),
        ([NEW], [OLD, AGAIN], "host new"),
        ([NEW, AGAIN], [OLD], "the RTX 4090"),
        ([NEW, OLD], [BESIDE], "either one of these cards or host old"),
        ([BARE], [OTHER], "host bare"),
        ([NEW, SLOT], [OLD], "either one of these cards or their host (new)"),
    ],
)
def test_a_host_is_blamed_with_the_image_unless_a_good_lane_clears_it(
    bad: list[Lane], good: list[Lane], told: str
) -> None:
    """It said that a fault takes the image and the RTX 4090, of which nothing told it from its host."""
    drawn = run({**dict.fromkeys(bad, "ggb"), **dict.fromkeys(good, "ggg")})
    assert f"it takes both the image and {told};" in sentence(drawn)


def test_a_card_of_two_hosts_is_named_once() -> None:
    drawn = run({NEW: "bbb", AGAIN: "bbb", OLD: "ggg"})
    assert "the fault of the RTX 4090, not the image's" in sentence(drawn)


def test_a_machine_on_which_an_older_version_is_good_is_not_suspected() -> None:
    text = sentence(in_a_pool({POOL: "ggb"}, ON_GPU2))
    assert "gpu2" not in text
    assert "since 22.12" in text


def test_a_card_that_is_bad_on_two_machines_of_a_pool_is_told_from_its_host() -> None:
    """One machine may be broken; two machines have only the card in common."""
    one = sentence(in_a_pool({POOL: "bbb", NEW: "ggg"}, ON_GPU2))
    assert "the fault of the RTX 3090, or of its host (gpu2), not the image's" in one
    two = sentence(in_a_pool({POOL: "bbb", NEW: "ggg"}, {**ON_GPU2, "variable": "gpu1"}))
    assert "the fault of the RTX 3090, not the image's" in two


VERSIONS = ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (7.838, "KiB/step", "7.8 KiB/step"),
        (3072, "KiB/step", "3 MiB/step"),
        (1.0, "files/step", "1 file/step"),
        (0.5, "files/step", "0.50 files/step"),
        (1.01, "processes/step", "1 process/step"),
        (2.0, "zombies/step", "2 zombies/step"),
        (0.02, "s/step", "20 ms/step"),
        (1.0, "s/step", "1 s/step"),
        (100, "B/step", "100 B/step"),
        (5000, "B/step", "4.9 KiB/step"),
        (2.1, "ratio", "2.1 times as much"),
        (1.5, "ratio", "50 % more"),
        (0.5, "ratio", "50 % less"),
        (0.375, "failures", "38 % of launches"),
        (1.0, "failures", ""),
        (0.6, "loss", "0.6 loss"),
    ],
)
def test_a_size_is_told_in_plain_words(value: float, unit: str, text: str) -> None:
    effect = Effect(value=value, unit=unit, ci=(value, value))
    assert fault_sentences.size(effect, metric="memory") == text


def test_a_size_says_what_it_measures() -> None:
    """`has slower steps (50 % more)` does not say what there is more of."""
    half, five = (Effect(value=value, unit="ratio") for value in (1.5, 5.0))
    assert fault_sentences.size(half, metric="step_time") == "50 % longer"
    assert fault_sentences.size(five, metric="peak_memory") == "5 times as much"
    assert fault_sentences.size(five, metric="metrics.loss") == "5 times what it was"
    late = Effect(value=3.0, unit="s")
    assert fault_sentences.size(late, metric="end_time") == "3 s longer"


def test_a_size_has_the_unit_of_its_effect() -> None:
    """`81 KiB/step` of a program that has no steps, only lines of output."""
    assert fault_sentences.size(Effect(value=81.0, unit="KiB/line"), metric="memory") == "81 KiB/line"
    assert fault_sentences.size(Effect(value=2.0, unit="s"), metric="cpu_time") == "2 s more"


@pytest.mark.parametrize(
    ("values", "unit", "text"),
    [
        ((0.2, 0.4), "failures", "20 to 40 % of launches"),
        ((0.2, 1.0), "failures", "20 % of launches to all launches"),
        ((1.0, 2.0), "files/step", "1 file/step to 2 files/step"),
        ((2.8, 24 * 1024), "KiB/step", "2.8 KiB/step to 24 MiB/step"),
        ((1.2, 1.4), "ratio", "20 to 40 % more"),
        ((1.5, 3.0), "ratio", "50 % more to 3 times as much"),
    ],
)
def test_several_sizes_are_told_from_the_least_to_the_most(values: tuple[float, ...], unit: str, text: str) -> None:
    assert fault_sentences.sizes([Effect(value=value, unit=unit) for value in values], metric="memory") == text


def test_failures_of_several_lanes_are_told_as_one_share() -> None:
    """`in 25 to 80 % of launches` of a crash that came in 30 % on each of three cards."""
    failed = {OLD: 2, NEW: 4}

    def judge(version: str, at: Lane, _: Variant) -> CellVerdict:
        return replace(build.crash(), trials=8, failed=failed[at]) if version == "22.12" else build.flat()

    found = [
        build.finding(
            faults.NGC, at, faults.PLAIN, before="21.08", after="22.12", metric="outcome", verdict="crash",
            effect=Effect(value=failed[at] / 8, unit="failures"),
        )
        for at in (OLD, NEW)
    ]  # fmt: skip
    told = sentence(build.run([(faults.NGC, (OLD, NEW), (faults.PLAIN,))], judge, verdict="regression", findings=found))
    assert told.startswith("signal_ops crashes in 38 % of launches since 22.12, on both cards")


@pytest.mark.parametrize("name", list(SIGNALS))
def test_every_signal_has_a_verb(name: str) -> None:
    size = fault_sentences.size(Effect(value=2.0, unit="ratio"), metric=name)
    finding = build.finding(build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric=name)
    told = fault_sentences.predicate([finding], size)
    assert told.startswith(SIGNALS[name].verb.split(maxsplit=1)[0]) or name == "outcome"
    assert size in told


def test_a_leak_says_whose_memory_it_is() -> None:
    """A user who reads only `leaks 8.1 KiB a step` looks for it in the wrong process."""
    own, workers = (
        build.finding(build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric=metric)
        for metric in ("memory", "worker_memory")
    )
    assert fault_sentences.predicate([own], "8.1 KiB/step") == "leaks 8.1 KiB/step"
    assert fault_sentences.predicate([workers], "8.1 KiB/step") == "leaks 8.1 KiB/step in its workers"


def test_a_number_that_is_none_and_a_metric_of_the_scenario_have_words() -> None:
    of = build.finding(build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric="metrics.loss")
    for value, told in ((1.5, "50 % higher"), (0.9, "10 % lower"), (5.0, "5 times what it was")):
        size = fault_sentences.size(Effect(value=value, unit="ratio"), metric="metrics.loss")
        assert fault_sentences.predicate([of], size) == f"`loss` is {told}"
    assert fault_sentences.predicate([of], "") == "returns another `loss`"
    late = fault_sentences.predicate([replace(of, verdict="late")], "10 % higher")
    assert late == "`loss` is 10 % higher at the end"
    assert fault_sentences.predicate([replace(of, verdict="vanished")], "") == "no longer returns a number as `loss`"
    assert fault_sentences.predicate([replace(of, verdict="varies")], "") == "returns another `loss` in each launch"
    nan = build.finding(
        build.MULTIDICT, build.HERE, build.POP, before=None, after="6.3.0", metric="metrics.loss", verdict="nan"
    )
    told = "NaN, infinity or a number beyond 1e30 as `loss`"
    assert fault_sentences.predicate([nan], "") == f"returns {told}"
    assert fault_sentences.predicate([nan], "", gives="prints") == f"prints {told}"


@pytest.mark.parametrize(
    ("since", "until", "text"),
    [
        ((0, 1), None, "since 2"),
        ((0, 1), (2, 3), "since 2 (fixed in 4)"),
        ((0, 1), (2, 4), "since 2 (fixed in a version after 3, 5 at the latest)"),
        ((0, 2), None, "since a version after 1, 3 at the latest"),
        ((-1, 0), None, "in every version from 1, the oldest"),
        ((-1, 2), None, "in every version from 3, the oldest that can be judged"),
        (None, (2, 3), "up to 3 (fixed in 4)"),
    ],
)
def test_an_end_is_no_more_exact_than_it_is_known(
    since: tuple[int, int] | None, until: tuple[int, int] | None, text: str
) -> None:
    episode = Episode(begins=None, ends=None, since=since, until=until, seen=2)
    assert fault_sentences.since(episode, VERSIONS) == text


def test_a_slower_server_takes_longer_per_request() -> None:
    served = build.variant("chat")
    served = replace(served, scenario=replace(served.scenario, script=None, serve=("serve",)))
    found = build.finding(
        build.MULTIDICT, build.HERE, served, before="6.2.0", after="6.3.0", metric="step_time", verdict="bad"
    )
    assert fault_sentences.predicate([found], "50 % longer") == "takes 50 % longer per request"
    assert fault_sentences.predicate([replace(found, verdict="slowdown")], "") == "gets slower request by request"
    assert finding_words.text(found).startswith("slower requests since 6.3.0")
    rate = replace(found, metric="metrics.steps_per_s", verdict="value")
    assert finding_words.text(rate).startswith("another steps_per_s since 6.3.0"), "it said requests_per_s"
    assert "`step_loss`" in fault_sentences.predicate([replace(rate, metric="metrics.step_loss")], "")


@pytest.mark.parametrize(
    ("took_s", "told"),
    [(10.03, "does not end on SIGTERM, and is killed after 10 s, since 6.3.0"), (9.0, "takes 9 s longer to end since")],
)
def test_a_server_that_is_killed_is_not_said_to_end_late(took_s: float, told: str) -> None:
    served = build.variant("chat")
    served = replace(served, scenario=replace(served.scenario, script=None, serve=("serve",)))

    def judge(version: str, lane: Lane, of: Variant) -> CellVerdict:
        ended = SignalVerdict(seen="good", value=0.01 if version == "6.2.0" else took_s)
        return build.seen(build.flat(), end_time=ended)

    drawn = build.run([(build.series("multidict", ["6.2.0", "6.3.0"]), [build.HERE], [served])], judge)
    late = build.finding(
        drawn.plan.rows[0].series, build.HERE, served, before="6.2.0", after="6.3.0", metric="end_time",
        verdict="slower", effect=Effect(value=9.0, unit="s"),
    )  # fmt: skip
    assert told in sentence(build.with_findings(drawn, [late]))


@pytest.mark.parametrize(
    ("old", "new", "most"), [("gbb", "gmm", "RTX 4090"), ("gmm", "gbb", "RTX 3090"), ("gbb", "gbb", "")]
)
def test_the_lane_with_the_larger_fault_is_named(old: str, new: str, most: str) -> None:
    """`leaks 0.80 to 8 KiB/step, on both cards` did not say which card has which."""
    told = sentence(faults.run({OLD: old, NEW: new}))
    assert ("on both cards, most on the " + most in told) if most else "most on" not in told


def test_the_lane_that_loses_most_of_a_rate_is_named() -> None:
    """The ratio of what falls is smallest where the fault is largest."""
    found = [
        build.finding(
            faults.NGC, at, faults.PLAIN, before="21.08", after="22.12", metric="throughput",
            effect=Effect(value=value, unit="ratio", ci=(value - 0.01, value + 0.01)),
        )
        for at, value in ((OLD, 0.4), (NEW, 0.8))
    ]  # fmt: skip
    drawn = build.run(
        [(faults.NGC, (OLD, NEW), (faults.PLAIN,))], lambda *_: build.flat(), verdict="regression", findings=found
    )
    assert "on both cards, most on the RTX 3090" in sentence(drawn)


def test_sizes_in_two_units_name_no_lane_as_the_larger_fault() -> None:
    """A run that takes 300 s longer was said to be `most` beside one that takes 1.2 to 1.5 times as long."""
    get, put = (build.variant("ops", op=op) for op in ("get", "put"))
    found = [
        build.finding(
            faults.NGC, at, of, before="21.08", after="22.12", metric="run_time",
            effect=Effect(value=value, unit=unit),
        )
        for at, of, value, unit in ((OLD, get, 1.2, "ratio"), (OLD, put, 1.5, "ratio"), (NEW, get, 300.0, "s"))
    ]  # fmt: skip
    drawn = build.run(
        [(faults.NGC, (OLD, NEW), (get, put))], lambda *_: build.flat(), verdict="regression", findings=found
    )
    assert "most on" not in sentence(drawn)


def test_a_leak_that_open_files_explain_is_told_with_them() -> None:
    """A version that kept 0.25 maps of a file per step, and with them 99 KiB, only `leaves files open`."""
    files, memory = (
        build.finding(
            faults.NGC, OLD, faults.PLAIN, before="21.08", after="22.12", metric=metric,
            effect=Effect(value=value, unit=f"{unit}/step"),
        )
        for metric, value, unit in (("open_files", 0.25, "files"), ("memory", 98.7, "KiB"))
    )  # fmt: skip
    found = [files, replace(memory, consequence_of="open_files")]
    drawn = build.run(
        [(faults.NGC, (OLD,), (faults.PLAIN,))], lambda *_: build.flat(), verdict="regression", findings=found
    )
    assert "since 22.12, on the RTX 3090; its memory grows by 99 KiB/step." in sentence(drawn)
