"""One box per finding: what a user acts on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.model import CellVerdict, Effect, RunResult, SignalVerdict, Variant
from harness.model.measured import Facts
from harness.report.content.finding_boxes import boxes
from harness.report.content.version_table import tables
from harness.report.terminal import run_report
from harness.report.text import headline
from harness.report.text.fault_sentences import numbered
from tests.players import build, faults
from tests.players.faults import NEW, OLD, SIGNAL, run

RESULTS = [
    build.quickstart(), build.varied(), build.worsening(), run({OLD: "ggb", NEW: "iib"}, variants=SIGNAL),
    run({OLD: "ggu", NEW: "iib"}, variants=SIGNAL), run({OLD: "gbb", NEW: "ggb"}),
]  # fmt: skip


def lines(result: RunResult, number: int = 0) -> list[str]:
    return boxes(result)[number].lines


def test_a_box_says_what_how_sure_whose_fault_and_what_to_do_next() -> None:
    assert lines(build.quickstart()) == [
        "multidict leaks 7.8 KiB/step since 6.3.0 (fixed in 6.3.2).",
        "figures: memory at most 0.017 → 7.84 (7.82 to 7.85) KiB/step",
        "evidence: 3 launches against 3; confirmed",
        "whose fault: the package's",
        "layer: native heap",
        "next: harness issue reports/quickstart/20250301T120000Z-1a2b 1",
    ]


def test_a_package_is_not_blamed_for_what_came_with_it() -> None:
    """A newer gensim was slower because scipy, which came with it, took longer to import."""
    found = build.quickstart()
    came = {"6.2.0": "1.13.1", "6.3.0": "1.17.1"}
    cells = []
    for each in found.cells:
        version = each.cell.image.version
        packages = {"multidict": version, "scipy": came.get(version, "1.17.1"), "six": "1"}
        cells.append(replace(each, trials=tuple(replace(one, facts=Facts(packages=packages)) for one in each.trials)))
    box = boxes(replace(found, cells=tuple(cells)))[0]
    assert box.texts["whose fault"] == "one of the 2 packages that differ (multidict and scipy)"


def test_two_hosts_and_a_rule_are_one_box() -> None:
    (box,) = boxes(run({OLD: "ggb", NEW: "iib"}, variants=SIGNAL))
    assert box.lines[0] == (
        "signal_ops leaks 24 KiB/step since 22.12, on both cards, when input is random or variable."
    )
    assert "params: input in {random, variable}; op makes no difference; 4 variants bad, 4 good" in box.lines
    assert "whose fault: the image's; not the RTX 4090's fault" in box.lines
    assert box.findings == tuple(range(1, 9))
    assert box.texts["evidence"].startswith("24 launches against 12")


@pytest.mark.parametrize(
    ("bad", "found"),
    [(build.leak(7.8), build.quickstart), (replace(build.flat(), verdicts=("growth",)), build.signalled)],
)
def test_a_box_counts_the_launches_that_agree(bad: CellVerdict, found: Callable[[], RunResult]) -> None:
    """On the growth of a count it read "6 launches against 6", and the bug report "2 of 6 launches show it"."""
    finding = found().findings[0]

    def judge(version: str, *_: object) -> CellVerdict:
        return replace(bad if version == finding.after else build.flat(), trials=6, agreeing=2)

    result = build.run([(build.MULTIDICT, [build.HERE], [build.POP])], judge, findings=(finding,))
    assert "evidence: 6 launches, 2 of which agree, against 6; confirmed" in lines(result)


def test_what_is_undecided_asks_for_the_cell_that_tells() -> None:
    (box,) = boxes(run({OLD: "ggu", NEW: "iib"}, variants=SIGNAL))
    assert box.commands[0] == "harness sweep matrix.yaml --decide"
    undecided = "whether the image or the RTX 4090 is at fault is undecided"
    assert box.texts["whose fault"] == f"{undecided}: run 22.12 on the RTX 3090 to settle it"


def test_consequences_stand_on_the_box_of_their_cause() -> None:
    worse, start = boxes(build.worsening())
    assert worse.sentence == "tensorflow leaks 0.68 KiB/step since 2.16.2."
    assert worse.texts["consequences"] == "peak memory 39 % more; step time 70 % longer"
    assert "consequences" not in start.texts
    assert start.sentence == "tensorflow leaks 0.12 KiB/step in every version from 2.14.1, the oldest."


def test_a_consequence_in_some_variants_is_not_said_of_all() -> None:
    two = [build.variant("s", a=number) for number in (1, 2)]
    leaks = [build.finding(build.MULTIDICT, build.HERE, one, before="6.2.0", after="6.3.0") for one in two]
    slower = replace(
        leaks[0], metric="step_time", effect=Effect(value=1.5, unit="ratio"), verdict="slower", consequence_of="memory"
    )
    result = build.run(
        [(build.MULTIDICT, [build.HERE], two)],
        lambda version, *_: build.leak(7.8) if version >= "6.3" else build.flat(),
        findings=[*leaks, slower],
    )
    (box,) = boxes(result)
    assert box.texts["consequences"] == "step time 50 % longer (in 1 of 2 variants)"


def test_a_consequence_stands_on_no_box_of_another_series() -> None:
    rows = [(build.MULTIDICT, build.POP, "6.2.0", "6.3.0"), (build.TENSORFLOW, build.ZEROS, "2.14.1", "2.15.1")]
    leaks = [build.finding(of, build.HERE, variant, before=good, after=bad) for of, variant, good, bad in rows]
    slower = replace(
        leaks[1], metric="step_time", effect=Effect(value=1.5, unit="ratio"), verdict="slower", consequence_of="memory"
    )
    result = build.run(
        [(of, [build.HERE], [variant]) for of, variant, *_ in rows],
        lambda version, *_: build.leak(7.8) if version >= "6.3" or "2.15" <= version < "3" else build.flat(),
        findings=[*leaks, slower],
    )
    found = {box.attribution.series: box.texts.get("consequences", "") for box in boxes(result)}
    assert found == {"multidict": "", "tensorflow": "step time 50 % longer"}


def test_a_failure_says_how_many_launches_failed() -> None:
    box = boxes(build.varied())[2]
    assert box.texts["evidence"] == "3 of 3 launches failed, before 0 of 3; p = 0.0119; confirmed"
    assert "fixed in" in box.sentence
    assert box.texts.get("figures", "") == ""


def test_each_way_in_which_the_variants_of_a_failure_end_is_quoted_once() -> None:
    """Only one reason of four was shown, without its variant, and the p-value of one next to the launches of all."""
    ends = {1: "exit code 7", 2: "no end within 30 s", 3: "exit code 7"}
    variants = [build.variant("s", a=number) for number in ends]

    def judge(version: str, _: object, of: Variant) -> CellVerdict:
        said = ends[int(str(of.params[0][1]))]
        return replace(build.crash(), why=said) if version >= "6.3" else build.flat()

    found = [
        build.finding(
            build.MULTIDICT, build.HERE, one, before="6.2.0", after="6.3.0", metric="outcome", verdict="crash",
            effect=Effect(value=1.0, unit="failures"), p=0.01 * number,
        )
        for number, one in enumerate(variants, start=1)
    ]  # fmt: skip
    (box,) = boxes(build.run([(build.MULTIDICT, [build.HERE], variants)], judge, findings=found))
    assert box.texts["output"] == "with a=1 and a=3, crash: exit code 7; with a=2, crash: no end within 30 s"
    told = "9 of 9 launches failed, before 0 of 9; p ≤ 0.03 in each variant; confirmed"
    assert box.texts["evidence"] == told


def test_a_fault_of_which_only_the_end_is_known_has_its_own_size_not_that_of_the_repair() -> None:
    """Slower steps were reported to take 34.8 % less."""
    end = build.finding(
        build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", kind="first_fixed", metric="step_time",
        verdict="slower", effect=Effect(value=0.652, unit="ratio"),
    )  # fmt: skip
    (box,) = boxes(build.run([(build.MULTIDICT, [build.HERE], [build.POP])], lambda *_: build.flat(), findings=[end]))
    assert box.sentence == "multidict takes 53.4 % longer per step up to 6.2.0 (fixed in 6.3.0)."


def compared(step_ms: float) -> CellVerdict:
    return build.told(build.flat(step_ms=step_ms), "step_time", seen="good", ci=None)


@pytest.mark.parametrize(
    ("ratio", "told"),
    [(1.312, "; +31.2 (37 to 47) %"), (1.42, "; +42 (37 to 47) %")],
)
def test_a_size_that_is_not_the_ratio_of_the_two_figures_says_what_it_compares(ratio: float, told: str) -> None:
    """A headline of 42 % more stood above 10.0 → 13.1 ms, which are 31 %."""
    finding = build.finding(
        build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric="step_time", verdict="slower",
        effect=Effect(value=ratio, unit="ratio", ci=(1.37, 1.47)),
    )  # fmt: skip

    def judge(version: str, *_: object) -> CellVerdict:
        return compared(13.1 if version >= "6.3" else 10.0)

    (box,) = boxes(build.run([(build.MULTIDICT, [build.HERE], [build.POP])], judge, findings=[finding]))
    assert box.texts.get("figures", "") == f"step time 10.0 → 13.1 ms{told}"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [(0.106, 0.0768, "106 → 76.8 µs"), (0.0373, 0.141, "37.3 → 141 µs"), (900.0, 1200.0, "0.900 → 1.20 s")],
)
def test_figures_that_are_compared_share_a_unit(old: float, new: float, told: str) -> None:
    """It read "0.106 ms → 76.8 µs": which of the two is more?"""
    finding = build.finding(
        build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric="step_time", verdict="slower"
    )

    def judge(version: str, *_: object) -> CellVerdict:
        return compared(new if version >= "6.3" else old)

    result = build.run([(build.MULTIDICT, [build.HERE], [build.POP])], judge, findings=[finding])
    assert boxes(result)[0].texts.get("figures", "") == f"step time {told}"
    (first, *_) = tables(result)
    units = {cell.word.split()[-1] for row in first.rows[1:] for cell in row.cells if cell is not None}
    assert units == {told.rsplit(maxsplit=1)[-1]}


def test_a_checksum_that_differs_looks_different() -> None:
    """Card, table and old → new read `checksum 42 → 42`."""
    finding = build.finding(
        build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric="metrics.checksum",
        verdict="value", effect=None,
    )  # fmt: skip

    def judge(version: str, *_: object) -> CellVerdict:
        bad = version >= "6.3"
        seen = SignalVerdict(seen="bad" if bad else "good", value=42.000000001 if bad else 42.0, visible=0.0)
        return build.seen(build.flat(), **{"metrics.checksum": seen})

    result = build.run([(build.MULTIDICT, [build.HERE], [build.POP])], judge, findings=[finding])
    assert boxes(result)[0].texts.get("figures", "") == "checksum 42 → 42.000000001"
    (first, *_) = tables(result)
    words = {cell.word for row in first.rows[1:] for cell in row.cells if cell is not None}
    assert words == {"42", "42.000000001"}


def test_what_lasts_comes_first() -> None:
    assert ["fixed in" in box.sentence for box in boxes(build.varied())] == [False, False, True]


def test_what_may_yet_change_is_provisional() -> None:
    result = build.quickstart()
    assert "provisional: the run was interrupted" in boxes(replace(result, verdict="interrupted"))[0].texts["evidence"]
    early = replace(result.cells[3], verdict=replace(result.cells[3].verdict, provisional=True))
    again = build.with_findings(replace(result, cells=(*result.cells[:3], early, *result.cells[4:])), result.findings)
    assert "provisional: more launches were planned" in boxes(again)[0].texts["evidence"]
    once = build.with_findings(result, [replace(result.findings[0], confirmed=False), *result.findings[1:]])
    assert "provisional: one side has fewer than two launches" in boxes(once)[1].texts["evidence"], (
        "what is sure is first"
    )
    assert boxes(once)[0].texts["evidence"].endswith("; confirmed")


def test_the_figure_has_every_version_and_its_tone() -> None:
    box = boxes(build.quickstart())[1]
    points = {point.version: point for point in box.figure.points}
    assert list(points) == [image.version for image in build.MULTIDICT.images]
    assert "".join("ox"[point.tone == "bad"] for point in points.values()) == "oooxxooxxo"
    assert [name for name, point in points.items() if point.own] == ["6.5.0", "6.6.3"]
    assert points["6.5.0"].low is not None
    assert points["6.5.0"].low < points["6.5.0"].value < (points["6.5.0"].high or 0)  # type: ignore[operator]


def test_a_version_that_was_not_measured_is_not_good_in_the_figure() -> None:
    (box,) = boxes(run({NEW: "gub"}))
    assert [point.tone for point in box.figure.points] == ["good", "none", "bad"]


def test_any_signal_has_a_box() -> None:
    """This includes a signal that this module does not know by name."""

    def judge(version: str, *_: object) -> object:
        bad = version >= "6.3"
        seen = SignalVerdict(seen="bad" if bad else "good", value=float(bad), ci=(bad - 0.01, bad + 0.01), limit=0.01)
        return replace(build.flat(), signals={"open_files": seen})

    found = build.finding(
        build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric="open_files", verdict="growth",
        effect=Effect(value=1.0, unit="files/step", ci=(0.99, 1.01)),
    )  # fmt: skip
    result = build.run([(build.MULTIDICT, [build.HERE], [build.POP])], judge, findings=[found])  # type: ignore[arg-type]
    assert lines(result)[:3] == [
        "multidict leaves files open (1 file/step) since 6.3.0.",
        "figures: open files 0 → 1 (0.99 to 1.01) file/step",
        "evidence: 3 launches against 3; confirmed",
    ]


@pytest.mark.parametrize("result", RESULTS, ids=range(len(RESULTS)))
def test_every_finding_that_is_no_consequence_is_on_a_box(result: RunResult) -> None:
    told = boxes(result)
    by_number = dict(enumerate(numbered(result), start=1))
    own = {number for number, one in by_number.items() if not one.consequence_of}
    assert {number for box in told for number in box.findings} == own
    assert [box.number for box in told] == list(range(1, 1 + len(told)))
    for box in told:
        command = shlex.split(box.commands[-1])
        assert command[:2] == ["harness", "issue"]
        assert command[-1] == str(box.number)
        named = by_number[box.number]
        assert (named.series, named.metric) == (box.attribution.series, box.attribution.metric)
        assert named.after in {point.version for point in box.figure.points if point.own} or named.kind == "first_fixed"
        assert all(line.strip() for line in box.lines)


def test_a_run_without_findings_has_no_boxs() -> None:
    assert boxes(build.quiet()) == ()
    assert boxes(faults.judged(build.unreachable())) == ()


def test_a_slower_run_is_told_with_the_part_that_takes_longer() -> None:
    """A user asks why the run takes longer, and read only of its last step."""

    def judge(version: str, *_: object) -> CellVerdict:
        is_bad = version == "6.3.0"
        figures = {"step_time": 0.001, "run_time": 7.2 if is_bad else 4.2, "end_time": 3.01 if is_bad else 0.01}
        seen = {
            name: SignalVerdict(seen="good", value=value, limit=0.1, visible=0.05) for name, value in figures.items()
        }
        return build.seen(build.flat(), **seen)

    ends = build.finding(build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0", metric="end_time")
    ends = replace(ends, effect=Effect(value=3.0, unit="s"), verdict="slower", p=1e-9)
    runs = replace(ends, metric="run_time", effect=Effect(value=7.2 / 4.2, unit="ratio"), consequence_of="end_time")
    result = build.run([(build.MULTIDICT, [build.HERE], [build.POP])], judge, findings=[ends, runs])
    (box,) = boxes(result)
    assert box.texts["run"] == "4.20 → 7.20 s; end +3.00 s"
    told = "multidict takes 3 s longer to end since 6.3.0; the run takes 71.4 % longer."
    assert headline.sentence(result) == told
    text = run_report.text(result, wide=True)
    assert re.search(r"3[.,]01\d* m?s +\+3\.00 s", text), "seconds are no ratio: the table said `9,063 ms 9.01×`"


def test_a_brief_line_says_why_launches_failed_before_how_many() -> None:
    """What does not fit into one line is cut at its end: a crash was told without its exception, and a hang as
    `provisional`."""
    found = build.varied()
    crash = next(box for box in boxes(found) if box.attribution.metric == "outcome")
    assert 0 < crash.brief.index("SIGSEGV") < crash.brief.index("launches failed"), crash.brief
    early = [replace(each, verdict=replace(each.verdict, provisional=True)) for each in found.cells]
    crash = next(box for box in boxes(replace(found, cells=tuple(early))) if box.attribution.metric == "outcome")
    assert crash.brief.index("SIGSEGV") < crash.brief.index("provisional"), crash.brief


def test_a_brief_line_drops_an_interval_and_not_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """`5 launches against 5; p < 0.00…`: the end of the line was cut, while the size had two intervals."""
    slower = next(box for box in boxes(build.varied()) if box.attribution.metric == "step_time")
    assert "(2.26 to 2.35) ms; 5.62× (5.5 to 5.7); 3 launches against 3" in slower.brief
    monkeypatch.setattr("harness.report.content.finding_boxes._MOST_BRIEF", 50)
    slower = next(box for box in boxes(build.varied()) if box.attribution.metric == "step_time")
    assert "ms; 5.62× (5.5 to 5.7); 3 launches against 3" in slower.brief
