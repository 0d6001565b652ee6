"""One box per finding: what a user acts on, and what else was observed."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from harness.model import CellVerdict, Effect, Lane, Observation, RunResult, SignalVerdict, Variant, Varied
from harness.report import html_page, version_table
from harness.report.charts import history_chart
from harness.report.document import document
from harness.report.exports import junit, summary_json
from harness.report.finding_boxes import boxes
from harness.report.terminal import run_report
from harness.report.text import headline
from harness.report.text.fault_sentences import numbered
from tests.players import build, faults
from tests.players.faults import NEW, OLD, SIGNAL, run
from tests.players.pages import Elements

RESULTS = [
    build.quickstart(), build.varied(), build.worsening(), run({OLD: "ggb", NEW: "iib"}, variants=SIGNAL),
    run({OLD: "ggu", NEW: "iib"}, variants=SIGNAL), run({OLD: "gbb", NEW: "ggb"}),
]  # fmt: skip


def lines(result: RunResult, number: int = 0) -> list[str]:
    return boxes(result)[number].lines


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


def test_the_chart_of_a_finding_has_every_version_and_its_own_changes() -> None:
    box = boxes(build.quickstart())[1]
    drawn = history_chart.of_findings(box.telling.findings, box.row)
    assert drawn is not None
    assert [point["version"] for point in drawn.rows["points"]] == [image.version for image in build.MULTIDICT.images]
    assert "".join("ox"[point["tone"] == "bad"] for point in drawn.rows["points"]) == "oooxxooxxo"
    assert [change["version"] for change in drawn.rows["changes"]] == ["6.5.0", "6.6.4"]


def test_a_single_figure_is_no_chart() -> None:
    box = boxes(build.quickstart())[0]
    assert history_chart.of_findings(box.telling.findings, box.row[3:4]) is None


@pytest.mark.parametrize("result", RESULTS, ids=range(len(RESULTS)))
def test_every_finding_that_is_no_consequence_is_on_a_box(result: RunResult) -> None:
    told = boxes(result)
    by_number = dict(enumerate(numbered(result), start=1))
    own = {number for number, one in by_number.items() if not one.consequence_of}
    assert {box.numbers[one] for box in told for each in box.fault.episodes for one in each.findings} == own
    assert [box.number for box in told] == list(range(1, 1 + len(told)))
    for box in told:
        command = shlex.split(box.commands[-1])
        assert command[:2] == ["harness", "issue"]
        assert command[-1] == str(box.number)
        named = by_number[box.number]
        assert (named.series, named.metric) == (box.fault.series, box.fault.metric)
        assert named.after in {entry.cell.image.version for entry in box.row}
        assert all(line.strip() for line in box.lines)


def test_a_run_without_findings_has_no_boxs() -> None:
    assert boxes(build.quiet()) == ()
    assert boxes(faults.judged(build.unreachable())) == ()


def test_a_brief_line_says_why_launches_failed_before_how_many() -> None:
    """What does not fit into one line is cut at its end: a crash was told without its exception, and a hang as
    `provisional`."""
    found = build.varied()
    crash = next(box for box in boxes(found) if box.fault.metric == "outcome")
    assert 0 < crash.brief.index("SIGSEGV") < crash.brief.index("launches failed"), crash.brief
    early = [replace(each, verdict=replace(each.verdict, provisional=True)) for each in found.cells]
    crash = next(box for box in boxes(replace(found, cells=tuple(early))) if box.fault.metric == "outcome")
    assert crash.brief.index("SIGSEGV") < crash.brief.index("provisional"), crash.brief


def test_a_brief_line_drops_an_interval_and_not_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """`5 launches against 5; p < 0.00…`: the end of the line was cut, while the size had two intervals."""
    slower = next(box for box in boxes(build.varied()) if box.fault.metric == "step_time")
    assert "(2.26 to 2.35) ms; 5.62× (5.5 to 5.7); 3 launches against 3" in slower.brief
    monkeypatch.setattr("harness.report.finding_boxes._MOST_BRIEF", 50)
    slower = next(box for box in boxes(build.varied()) if box.fault.metric == "step_time")
    assert "ms; 5.62× (5.5 to 5.7); 3 launches against 3" in slower.brief


@pytest.mark.parametrize(("margin", "price"), [(0.02, "takes about 30 % longer than"), (0.2, "may take as long as")])
def test_a_variable_that_cures_a_version_is_told_with_its_price(margin: float, price: str) -> None:
    """Users ask which flag works around a fault until it is fixed, and how much slower that is, if not by chance."""
    on, off = (
        replace(one, scenario=replace(one.scenario, environment=(("FAST", "{fast}"),)))
        for one in (build.variant("train", fast="1"), build.variant("train", fast="0"))
    )
    crash = build.finding(
        build.series("app", ["1", "2"]), build.HERE, on, before="1", after="2", metric="outcome", verdict="crash",
        effect=Effect(value=1, unit="failures", ci=(0.292, 1)), p=0.01,
    )  # fmt: skip

    def verdict(version: str, lane: Lane, of: Variant) -> CellVerdict:
        if (version, of) == ("2", on):
            return build.crash()
        told = build.flat(step_ms=13 if of == off else 10)
        signal = told.of("step_time")
        value = signal.value or 0.0
        interval = value * (1 - margin), value * (1 + margin)
        return replace(told, signals={**told.signals, "step_time": replace(signal, ci=interval)})

    rows = [(build.series("app", ["1", "2"]), [build.HERE], [on, off])]
    (box,) = boxes(build.run(rows, verdict, findings=[crash]))
    cure = f"with fast=0 it is good, and {price} with fast=1 in 1 (step time 10.0 → 13.0 ms)"
    assert box.texts["cure"] == cure
    assert cure in " ".join(run_report.text(box.result, width=80).split())


def test_the_largest_change_leads_in_the_headline_and_in_the_table() -> None:
    """Of a leak that held 8.6 times as much memory, the headline and the table named 67 % more CPU time first."""
    of, effects = build.series("app", ["1", "2"]), {"cpu_time": 1.67, "peak_memory": 8.58}
    found = [
        build.finding(of, build.HERE, build.POP, before="1", after="2", metric=name, verdict="slower",
                      effect=Effect(value=value, unit="ratio"))
        for name, value in effects.items()
    ]  # fmt: skip
    bad = {name: SignalVerdict(seen="bad", value=3.0) for name in effects}

    def verdict(version: str, lane: Lane, of: Variant) -> CellVerdict:
        return build.seen(build.flat(), **(bad if version == "2" else {}))

    shown = document(build.run([(of, [build.HERE], [build.POP])], verdict, findings=found))
    assert "8.58 times as much memory" in shown.headline[0]
    assert [cell.word for cell in shown.tables[0].rows[0].cells if cell is not None][1] == "peak memory"


def test_a_growth_that_is_not_there_is_0_beside_one_that_is() -> None:
    """`shared memory -0.314 → 15.8 KiB/line` sounded as if the good version freed some."""
    of = build.series("app", ["1", "2"])
    grows = build.finding(of, build.HERE, build.POP, before="1", after="2", metric="shm",
                          effect=Effect(value=15.8, unit="KiB/step", ci=(15.7, 15.9)))  # fmt: skip
    sides = {"1": SignalVerdict(seen="good", value=-0.314, ci=(-0.4, -0.2)),
             "2": SignalVerdict(seen="bad", value=15.8, ci=(15.7, 15.9))}  # fmt: skip

    def verdict(version: str, lane: Lane, of: Variant) -> CellVerdict:
        return build.seen(build.flat(), shm=sides[version])

    result = build.run([(of, [build.HERE], [build.POP])], verdict, findings=[grows])
    (box,) = boxes(result)
    assert "shared memory 0 → 15.8 (15.7 to 15.9) KiB/step" in box.brief
    assert "-0.3" not in html_page.render(result)


def noticing(*texts: str) -> RunResult:
    result = build.quickstart()
    told = tuple(
        Observation(series=row.series.name, lane=row.lane, variant=row.variant, signal="log",
                    before=row.cells[0].image.version, after=row.cells[1].image.version, text=text)
        for text in texts
        for row in result.plan.rows[:2]
    )  # fmt: skip
    return replace(result, observations=told)


def test_what_an_image_prints_is_no_markup_and_no_escape() -> None:
    text = run_report.text(noticing("\x1b[31m[bold]red"), width=200, wide=True)
    assert "\x1b" not in text
    assert "[bold]red" in text


def test_one_screen_says_that_a_result_is_no_longer_reproducible() -> None:
    """A seeded run differed from launch to launch, and only the long report said so."""
    result = noticing("loss was the same in all launches and now differs")
    assert "now differs" not in run_report.text(result, width=200), "it was a line of the log"
    result = replace(result, observations=tuple(replace(one, signal="metrics.loss") for one in result.observations))
    assert "loss was the same in all launches and now differs" in run_report.text(result, width=200)
    told = headline.sentence(replace(build.quiet(), observations=result.observations))
    assert told.startswith("Nothing bad")
    assert "But results changed: multidict 6.0.5 → 6.1.0: loss was the same in all launches and now differs" in told


def test_the_headline_tells_what_became_better() -> None:
    """A history whose oldest versions were slower by 40 % was only headed `Nothing bad: all 30 cells are good`."""
    (told,) = noticing("14.0 → 9.99 ms; -28.6 %").observations
    rows = (replace(told, signal="step_time", last=None), replace(told, signal="step_time", last=None, text="14 → 9"))
    headed = headline.sentence(replace(build.quiet(), observations=rows))
    assert headed.startswith("Nothing bad: ")
    assert headed.endswith("Better: multidict 6.0.5 → 6.1.0: step time 14.0 → 9.99 ms; -28.6 % (and in 1 more row).")
    between_lanes = replace(rows[0], before=rows[0].after)
    assert "Better" not in headline.sentence(replace(build.quiet(), observations=(between_lanes,)))


def erring(result: RunResult, *, signal: str = "error") -> RunResult:
    row = result.plan.rows[0]
    told = Observation(series=row.series.name, lane=row.lane, variant=row.variant, signal=signal, before="6.0.5",
                       after="6.1.0", text="step # loss nan")  # fmt: skip
    return replace(result, observations=(told,), verdict="inconclusive" if result.verdict == "ok" else result.verdict)


def test_an_error_is_told_beside_a_finding_unless_that_is_the_failure_itself() -> None:
    """`six prints more since 1.16.0` was all that was said of a version that printed a traceback."""
    result = erring(build.quickstart())
    (told,) = result.observations
    at_leak = replace(result, observations=(replace(told, before="6.2.0", after="6.3.0"),))
    assert "multidict 6.3.0 prints a new error: step # loss nan." in headline.sentence(at_leak)
    row = replace(result.plan.rows[0], variant=replace(told.variant, params=(("op", "put"),)))
    varied = replace(at_leak, plan=replace(result.plan, rows=(*result.plan.rows, row)))
    only = replace(varied, observations=(replace(at_leak.observations[0], variant=row.variant),))
    assert "multidict 6.3.0 prints a new error with op=put: step # loss nan." in headline.sentence(only)
    elsewhere = replace(told.variant, scenario=replace(told.variant.scenario, name="elsewhere"))
    cells = [replace(one, cell=replace(one.cell, variant=elsewhere)) for one in result.cells]
    several = replace(at_leak, cells=(*result.cells, *cells))
    name = told.variant.scenario.name
    assert f"multidict 6.3.0 prints a new error in {name}: step # loss nan." in headline.sentence(several)
    both = replace(several, observations=(*several.observations, replace(several.observations[0], variant=elsewhere)))
    assert "multidict 6.3.0 prints a new error: step # loss nan." in headline.sentence(both)
    nan = replace(at_leak.findings[0], metric="metrics.loss", verdict="nan")
    assert "prints a new error" not in headline.sentence(build.with_findings(at_leak, (nan,)))


def test_a_version_that_is_partly_undecided_shows_what_is_to_look_at() -> None:
    """`other lines since 2` stood above a table with `? held cannot be judged` at 2 and `! other lines` at 3."""
    blind = replace(build.BLIND, visible=None)
    verdict = replace(build.flat(), signals={**build.flat().signals, "held": blind})
    result = erring(build.run([(build.MULTIDICT, [build.HERE], [build.POP])], lambda *_: verdict))
    cells = [cell for cell in version_table.tables(result)[0].rows[0].cells[:2] if cell is not None]
    assert [(cell.symbol, cell.word) for cell in cells] == [("?", "held"), ("!", "new error")]


def test_the_first_launches_of_a_try_are_no_answer() -> None:
    """The disk was full after one launch, and `harness report latest` said that the only cell is good."""
    result = build.quiet()
    said = headline.sentence(replace(result, plan=replace(result.plan, rehearsal=True)))
    assert "good" not in said
    assert "were not compared" in said


def test_a_program_that_reads_the_results_sees_observations() -> None:
    result = erring(build.quiet())
    (told,) = json.loads(summary_json.encoded(result))["observations"]
    assert (told["signal"], told["after"], told["text"]) == ("error", "6.1.0", "step # loss nan")
    (skipped,) = ElementTree.fromstring(junit.render(result)).iter("skipped")
    assert skipped.get("message") == "new error: step # loss nan"
    lines = [out.text for out in ElementTree.fromstring(junit.render(noticing("a"))).iter("system-out")]
    assert "log: a" in lines


# ---------------------------------------------------------------- on the page


def test_the_page_opens_with_a_box_for_each_finding() -> None:
    page = html_page.render(build.quickstart())
    found = Elements(page).found
    boxes = [attributes["id"] for tag, attributes in found if attributes.get("class") == "finding"]
    assert len(boxes) == 2, "a leak, its repair, and another one"
    assert page.index('class="findings"') < page.index('id="overview"')
    assert "harness issue reports/quickstart/20250301T120000Z-1a2b 1</code>" in page
    assert "Whose fault</h2>" not in page
    assert 'class="findings"' not in html_page.render(build.quiet())


def test_names_of_metrics_are_code_in_the_title_of_a_card() -> None:
    """The title read `returns 20 % more `count``, with the backticks."""
    result = build.quickstart()
    findings = [replace(one, metric="metrics.count", verdict="bad") for one in result.findings]
    page = html_page.render(build.with_findings(result, findings))
    titles = re.findall("<h3>(.*?)</h3>", page)
    assert any("<code>count</code>" in title for title in titles)
    assert not any("`" in title for title in titles)


def test_what_else_is_new_there_stands_in_the_box() -> None:
    result = build.quickstart()
    first = result.findings[0]

    def at(version: str, text: str) -> Observation:
        return Observation(
            series=first.series, lane=first.lane, variant=first.variant, signal="log", before="6.2.0", after=version,
            text=text,
        )  # fmt: skip

    lines = [f"line {number}" for number in range(7)]
    told = replace(
        result, observations=(*(at("6.3.0", line) for line in ["<b>Could not load\x1b", *lines]), at("6.4.4", "else"))
    )
    page = html_page.render(told)
    assert "also new</dt><dd>log: &lt;b&gt;Could not load; log: line 0" in page
    assert "and 3 more" in page
    assert "log: else" not in page.partition('id="observed"')[0]  # it is not new information about the finding
    assert re.search("also new</dt>", html_page.render(result)) is None


def test_a_level_that_differs_between_lanes_did_not_change() -> None:
    """A lane that is slower in all versions was listed among the results that changed."""
    result = erring(build.quickstart(), signal="step_time")
    (better,) = result.observations
    other_lane = replace(better, after=better.before, last="6.1.0")
    sections = [document(replace(result, observations=(one,))).sections for one in (better, other_lane)]
    seen = [[one.name for one in own if one.name in ("results", "observed")] for own in sections]
    assert seen == [["results"], ["observed"]]


def test_a_variable_is_no_image() -> None:
    """A command that was slow with one value of a variable was `the image's` fault, and there was no image."""
    images = tuple(replace(image, source=Varied(variable="N")) for image in build.MULTIDICT.images)
    series = replace(build.MULTIDICT, images=images)
    changes = [build.finding(series, build.HERE, build.POP, before="6.2.0", after="6.3.0")]
    bad = build.leak(7.8)
    result = build.run(
        [(series, [build.HERE], [build.POP])], lambda name, *_: bad if name >= "6.3" else build.flat(), findings=changes
    )
    assert boxes(result)[0].texts["whose fault"] == "that of the value of N"
