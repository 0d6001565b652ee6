"""How cells, findings and their components are named, in which order, and that no name acts on a terminal."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import CellVerdict, Finding, SignalVerdict
from harness.narrow.records import Component, ComponentGroup, Culprit, Hybrid, HybridResult, Narrowed, ProofCell
from harness.narrow.words import proof
from harness.report.document import document
from harness.report.text import finding_words, not_decided, signal_words
from harness.report.text.harmless_text import plain, plain_lines, shortened, spelled, version
from harness.report.text.names import ordered
from tests.players import build

GOOD_END = SignalVerdict(seen="good")
"""All that a cell by `judge: exit` has: it said "flat", and no memory was measured."""


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (build.leak(7.838), "leak 7.84 KiB/step"),
        (build.leak(7.838, also=["slowdown"]), "leak 7.84 KiB/step, slowdown"),  # 7.84 is of the leak
        (build.flat(0.0174), "flat ≤0.0174 KiB/step"),
        (replace(build.flat(), signals={"outcome": GOOD_END}), "exit 0"),
        (build.crash(), "crash SIGSEGV"),
        (build.crash(signal=None), "crash"),
        (build.crash(signal=999), "crash signal 999"),
        (replace(build.flat(), verdicts=("slowdown",), drift=0.23), "slowdown +23 %"),
        (replace(build.flat(), verdicts=("plateau",)), "plateau ≤0.017 KiB/step"),
        (replace(build.leak(1.5), verdicts=("suspect",)), "suspect 1.5 KiB/step"),
        (build.unknown("inconclusive", "trials disagree"), "inconclusive"),
        (build.unknown("untested", "no image"), "untested"),
    ],
)
def test_cell_text(verdict: CellVerdict, text: str) -> None:
    assert signal_words.cell_text(verdict) == text


def test_a_cell_says_how_often_and_why() -> None:
    entry = build.varied().cells[7]
    assert signal_words.cell_sentence(entry) == (
        "crash SIGSEGV (3 of 3 launches failed): crash in 3 of 3 launches: signal 11, died by SIGSEGV after step 1"
    )


def test_a_cell_that_the_matrix_leaves_out_gives_the_matrix_reason() -> None:
    entry = build.quickstart().cells[0]
    left_out = replace(entry, cell=replace(entry.cell, excluded="too long for a weekly run"),
                       verdict=build.unknown("untested", ""))  # fmt: skip
    assert signal_words.cell_sentence(left_out) == "untested: excluded: too long for a weekly run"


def test_a_change_that_is_smaller_than_any_that_is_named_is_none() -> None:
    """It read `+0.000005 %`."""
    assert signal_words.changed(1.0, 1.00000005) == "no change"
    assert signal_words.changed(1.0, 1.0001) == "+0.01 %"


LEAK, LEVEL = build.quickstart().findings[0], build.varied().findings[0]


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (LEAK, "memory leak since 6.3.0 (last good 6.2.0): 7.84 (7.83 to 7.85) KiB/step"),
        (build.quickstart().findings[1], "memory leak gone in 6.3.2 (last bad 6.3.1): 7.84 (7.83 to 7.85) KiB/step"),
        (replace(LEAK, kind="bad_from_start", before=None, effect=None), "memory leak since 6.3.0 or earlier"),
        (replace(LEAK, kind="drift", metric="step_time", verdict="slower", effect=None),
         "slower steps gradually, from 6.2.0 to 6.3.0"),
        (replace(LEAK, effect=None, confirmed=False),
         "memory leak since 6.3.0 (last good 6.2.0); not confirmed: one side has fewer than two launches"),
        (LEVEL, "slower steps since 1.21.0 (last good 1.20.1): 5.62× (5.5 to 5.7), p < 0.0001"),
        (replace(build.varied().findings[3], effect=None),  # the versions between did not run, and are not blamed
         "memory leak since 22.12-tf1-py3 or earlier (last good 21.08-tf1-py3); "
         "21.09-tf1-py3 and 21.10-tf1-py3 cannot be judged"),
    ],
)  # fmt: skip
def test_findings_say_where_how_large_and_how_sure(finding: Finding, text: str) -> None:
    assert finding_words.text(finding) == text
    assert finding_words.place(LEAK) == "multidict on local, multidict_pop"


def test_a_launch_that_a_machine_lost_is_counted_whatever_its_cell_became() -> None:
    """Ten launches were reported as seven trials: those of untested cells counted, those of inconclusive cells did
    not, so a user could not tell what the run had cost."""
    result = build.varied()
    lost = [replace(entry, verdict=replace(entry.verdict, trials=0)) for entry in result.cells]
    assert document(replace(result, cells=tuple(lost))).totals == document(result).totals


def test_a_problem_is_told_once() -> None:
    """The verdict's reason, or the lost host, may name it already."""
    entry = build.varied().cells[11]
    assert entry.problem
    assert signal_words.why(entry) == entry.problem
    result = build.unreachable()
    assert not_decided.lines(result) == []
    lost = replace(build.quickstart().cells[0], problem=result.hosts[0].problem or "")
    assert not_decided.lines(replace(result, cells=(lost,))) == []


def test_a_problem_whose_words_occur_in_the_reason_is_told() -> None:
    """It was searched in the reason: a short problem that the reason happened to contain was not told."""
    leaking = replace(build.quickstart().cells[3], problem="launches")
    assert leaking.problem in leaking.verdict.why
    assert signal_words.why(leaking) == f"not measured as planned: launches; {leaking.verdict.why}"


ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("1.15.4+nv20.12", "1.15.4+nv20.12"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07rest", "rest"),
        ("lone \x1b escape", "lone  escape"),
        ("two\nlines\r\n", "two lines"),
        ("nul\x00l", "null"),
        ("\u202egnp.exe", "gnp.exe"),
        ("\ud800", "\N{REPLACEMENT CHARACTER}"),
        ("\ufffe", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_plain(text: str, cleaned: str) -> None:
    assert plain(text) == cleaned


@given(ANY_TEXT)
def test_plain_text_is_one_harmless_line(text: str) -> None:
    cleaned = plain(text)
    assert not {unicodedata.category(character) for character in cleaned} & {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
    assert plain(cleaned) == cleaned


@given(ANY_TEXT)
def test_plain_text_is_valid_in_xml(text: str) -> None:
    """A JUnit file that does not parse loses every result in it."""
    element = ElementTree.Element("a", b=plain(text))
    assert ElementTree.fromstring(ElementTree.tostring(element)).get("b") == plain(text)


@given(ANY_TEXT, st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
def test_spelled_text_can_always_be_written(text: str, encoding: str) -> None:
    spelled(plain(text), encoding=encoding).encode(encoding)


def test_signs_are_spelled_in_ascii() -> None:
    assert spelled("✗ ≤0.02 µs → 5×", encoding="ascii") == "x <=0.02 us -> 5x"


def test_long_text_is_cut_with_a_sign() -> None:
    assert shortened("a" * 20, most=5) == "aaaa…"
    assert shortened("aaaaa", most=5) == "aaaaa"


def test_the_last_lines_are_kept() -> None:
    assert plain_lines("1\n2\x00\n3\n", most=2) == ["2", "3"]


def test_a_digest_is_as_short_as_docker_shows_it() -> None:
    """Seventy characters would push everything else out of a table."""
    assert version(f"22.12@sha256:{'0123456789abcdef' * 4}") == "22.12@sha256:0123456789ab"
    assert version("1.15.5+nv22.12") == "1.15.5+nv22.12"


def narrowed(*names: str) -> Narrowed:
    """Return a result in which the first of these components is proven; all of them differ."""
    groups = tuple(
        ComponentGroup(id=name, components=(Component(kind="distribution", name=name, old="1", new="2"),))
        for name in names
    )
    good = HybridResult(hybrid=Hybrid(base="A"), state="good", good=3)
    bad = HybridResult(hybrid=Hybrid(base="B"), state="bad", bad=3)
    cells = (
        ProofCell(role="A + c", groups=(names[0],), result=bad),
        ProofCell(role="B - c", groups=(names[0],), result=good),
    )
    culprit = Culprit(kind="culprit", parts=((names[0],),), proof=cells)
    return Narrowed(verdict="found", good="old", bad="new", groups=groups, culprits=(culprit,), a=good, b=bad)


def test_where_one_component_differs_the_two_versions_are_the_proof() -> None:
    """`old with six` and `new` were listed as if they had been launched separately."""
    only, *ends = proof(narrowed("six"))
    assert only == "six 1 → 2: no other component differs"
    assert [line.partition(":")[0] for line in ends] == ["old", "new"]


def test_otherwise_each_hybrid_of_the_proof_has_its_line() -> None:
    assert [line.partition(":")[0] for line in proof(narrowed("six", "attrs"))] == [
        "old", "new", "old with six", "new without six",
    ]  # fmt: skip


def test_what_another_finding_explains_is_numbered_after_it() -> None:
    """After a search, finding 1 was the processor time, and finding 2 was the leak that explains it."""
    variant = build.POP
    leak = build.finding(build.MULTIDICT, build.HERE, variant, before="6.2.0", after="6.3.0")
    explained = replace(leak, metric="cpu_time", before="6.1.0", consequence_of="memory", verdict="worse")
    fixed = replace(leak, kind="first_fixed", before="6.3.1", after="6.3.2")
    result = build.run(
        [(build.MULTIDICT, [build.HERE], [variant])], lambda *_: build.flat(), findings=[explained, leak, fixed]
    )

    assert ordered(result) == [leak, fixed, explained]
