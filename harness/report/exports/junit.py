"""Writes the report as JUnit XML, which CI servers read: one test per cell, and one per finding in the last suite.

bad, or the first bad version of a finding  failure
not run because of the infrastructure       error
untested, incompatible, excluded, unsure    skipped: whether the cell is good or bad is not known
blind in a signal, or too few launches      skipped: whether all limits are kept is not known
good, but prints a new error                skipped: a person should look at it

All observations are in the output of their tests.
A finding is a failure unless it is a fix. The run's headline is a property of the first suite, and the run's warnings
are in that suite's system-err.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from xml.etree import ElementTree

from harness.model import CellResult, Finding, Observation, RunResult, grouped
from harness.report import version_table
from harness.report.added import added_to
from harness.report.document import warnings
from harness.report.finding_boxes import observation_text
from harness.report.text import fault_sentences, finding_words, signal_words
from harness.report.text.harmless_text import plain, plain_lines
from harness.report.text.headline import sentence
from harness.report.text.names import CellKey, cell_key, finding_cells, lane_text, side_of, variant_text
from harness.report.version_table import ReportTable

_TAIL_LINES = 40
Changes = Mapping[str, Sequence[Finding]]
"""The findings that begin with a cell, by cell id."""
Observed = Mapping[CellKey, Sequence[Observation]]


def render(result: RunResult) -> str:
    """Return an XML document that ends with a newline."""
    root = ElementTree.Element("testsuites", name=plain(result.matrix))
    changes = finding_cells(result)
    observed = grouped((side_of(each, each.after), each) for each in result.observations)
    root.extend(_suite(shown_table, changes, observed) for shown_table in version_table.tables(result))
    if result.findings:
        root.append(_counted(ElementTree.Element("testsuite", name="findings"), _finding_cases(result)))
    for kind in ("tests", "failures", "errors"):
        root.set(kind, str(sum(int(suite.get(kind, "0")) for suite in root)))
    root.set("time", f"{result.duration_s:.3f}")
    for suite in root[:1]:
        if told := warnings(result):
            ElementTree.SubElement(suite, "system-err").text = "\n".join(told)
        properties = ElementTree.Element("properties")
        ElementTree.SubElement(properties, "property", {"name": "headline", "value": sentence(result)})
        suite.insert(0, properties)  # the format requires it before the tests
    ElementTree.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(root, encoding='unicode')}\n"


def _suite(shown_table: ReportTable, changes: Changes, observed: Observed) -> ElementTree.Element:
    entries = (cell.result for row in shown_table.rows for cell in row.cells if cell is not None)
    cases = (_case(one, changes.get(one.cell.id, ()), observed.get(cell_key(one.cell), ())) for one in entries)
    return _counted(ElementTree.Element("testsuite", name=shown_table.title), cases)


def _counted(suite: ElementTree.Element, cases: Iterable[ElementTree.Element]) -> ElementTree.Element:
    """Add tests and their counts to the suite, and return it."""
    suite.extend(cases)
    counts = {"tests": len(suite)}
    for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[kind] = len(suite.findall(f"testcase/{tag}"))
    suite.attrib.update({kind: str(count) for kind, count in counts.items()})
    return suite


def _case(entry: CellResult, changes: Sequence[Finding], observed: Sequence[Observation]) -> ElementTree.Element:
    cell = entry.cell
    case = ElementTree.Element(
        "testcase",
        classname=f"{plain(cell.image.series)}.{lane_text(cell.lane)}.{variant_text(cell.variant)}",
        name=plain(cell.image.version),
        time=f"{sum(trial.duration_s for trial in entry.trials):.3f}",
    )
    begins = [finding for finding in changes if finding.kind != "first_fixed"]
    outcome = _outcome(entry, begins=bool(begins))
    told = list(map(observation_text, observed))
    errors = [each for each in observed if each.signal == "error"]
    if outcome is None and entry.problem:
        told.insert(0, signal_words.cell_sentence(entry))
    if outcome is None and errors:
        ElementTree.SubElement(case, "skipped", {"message": observation_text(errors[0])})
    elif outcome is not None:
        message = "; ".join([*map(finding_words.text, begins), signal_words.cell_sentence(entry)])
        verdict = entry.verdict
        own = None if signal_words.tone(verdict.verdict) == "bad" else signal_words.matter(verdict)
        kind = begins[0].metric if begins else own or verdict.verdict
        attributes = {"message": message} | ({} if outcome == "skipped" else {"type": kind})
        failed = [trial for trial in entry.trials if not trial.ended_well]
        ElementTree.SubElement(case, outcome, attributes).text = (
            "\n".join(plain_lines(failed[-1].output.tail, most=_TAIL_LINES)) if failed else ""
        )
    if told:
        ElementTree.SubElement(case, "system-out").text = "\n".join(told)
    return case


def _finding_cases(result: RunResult) -> Iterator[ElementTree.Element]:
    """Yield a test for each finding; its output has what later commands found on it."""
    for number, finding in enumerate(fault_sentences.numbered(result), start=1):
        text = finding_words.text(finding)
        case = ElementTree.Element("testcase", classname=finding_words.place(finding), name=text)
        if finding.kind != "first_fixed":
            ElementTree.SubElement(case, "failure", {"message": text, "type": finding.metric})
        told = [line for each in added_to(result.added) for line in each.on(number).lines()]
        if told:
            ElementTree.SubElement(case, "system-out").text = "\n".join(told)
        yield case


def _outcome(entry: CellResult, *, begins: bool) -> str | None:
    """Return the tag of a test that did not pass; None if it passed. A cell whose setup failed is skipped, because that
    is not a problem of the infrastructure.
    """
    tone = entry.verdict.state
    if tone == "bad" or begins:
        return "failure"
    if tone == "good":
        return None
    return "error" if entry.problem and entry.verdict.verdict == "untested" else "skipped"
