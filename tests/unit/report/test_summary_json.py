"""summary.json is the interface for other programs: a field that changes here breaks them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import harness
from harness.model import RunResult, SignalVerdict
from harness.report.exports import summary_json
from harness.report.exports.summary_json import encoded
from tests.players import build, faults

REPORTS = Path(harness.__file__).parents[1] / "docs/reports.md"
RESULTS = [
    build.quickstart(), build.varied(), build.quiet(), build.unreachable(), build.worsening(), build.signalled(),
    faults.run({faults.OLD: "ggu", faults.NEW: "iib"}, variants=faults.SIGNAL),
]  # fmt: skip


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    made = summary_json.schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return made


def through_json(result: RunResult) -> Any:
    return json.loads(encoded(result))


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.verdict)
def test_every_summary_is_as_the_schema_has_it(result: RunResult, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(schema).validate(through_json(result))


def test_the_schema_refuses_what_is_missing_or_new(schema: dict[str, Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    summary = through_json(build.quickstart())
    del summary["cells"][0]["signal"]
    assert not validator.is_valid(summary)
    assert not validator.is_valid(through_json(build.quickstart()) | {"extra": 1})


def test_each_kind_of_finding_has_its_own_ends() -> None:
    found = through_json(build.quickstart())["findings"]
    assert (found[0]["last_good"], found[0]["first_bad"]) == ("6.2.0", "6.3.0")
    assert (found[2]["last_bad"], found[2]["first_good"]) == ("6.3.1", "6.3.2")
    assert "first_bad" not in found[2]
    assert found[0]["effect"] == {"value": 7.838, "unit": "KiB/step", "ci": [7.83, 7.85]}
    first = replace(build.quickstart().findings[0], kind="bad_from_start", before=None, after="6.0.5")
    oldest = through_json(replace(build.quickstart(), findings=(first,)))["findings"][0]
    assert oldest["oldest_bad"] == "6.0.5"
    assert not {"last_good", "first_bad"} & set(oldest)


def test_a_drift_has_its_ends_and_is_in_the_schema(schema: dict[str, Any]) -> None:
    first = replace(build.quickstart().findings[0], kind="drift", metric="step_time")
    summary = through_json(replace(build.quickstart(), findings=(first,)))
    assert (summary["findings"][0]["drift_from"], summary["findings"][0]["drift_to"]) == ("6.2.0", "6.3.0")
    jsonschema.Draft202012Validator(schema).validate(summary)


def test_growth_below_the_limit_is_named() -> None:
    """The cell read `? step time only ±14 %`, and its leak of 0.47 KiB a step stood in no table."""
    slow = SignalVerdict(seen="good", value=0.471, ci=(0.46, 0.48), limit=0.5)
    *before, last = build.quiet().cells
    small = replace(last, verdict=build.seen(build.flat(), memory=slow, step_time=build.BLIND))
    cells = through_json(replace(build.quiet(), cells=(*before, small)))["cells"]
    assert [cell["small_growth"] for cell in cells[-2:]] == [[], ["memory"]]


def test_numbers_that_are_not_finite_are_not_known() -> None:
    result = build.quickstart()
    odd = build.told(result.cells[0].verdict, "memory", value=float("nan"), ci=(float("-inf"), 1.0))
    odd = build.told(build.told(odd, "metrics.loss", value=np.float64(0.5)), "metrics.seen", value=np.nan)
    cell = through_json(replace(result, cells=(replace(result.cells[0], verdict=odd),)))["cells"][0]
    assert (cell["rate_kib_per_step"], cell["rate_ci"]) == (None, [None, 1.0])
    assert cell["metrics"] == {"loss": 0.5, "seen": None}


def test_a_detectable_effect_beyond_a_thousand_times_is_not_known() -> None:
    """A program that read `visible` had 2.7e25."""
    *before, last = build.quiet().cells
    signals = {
        name: SignalVerdict(seen="blind", visible=visible)
        for name, visible in {"step_time": 2.7e25, "tail": 999.0, "disk": 1e6, "peak_memory": 0.1}.items()
    }
    verdict = replace(last.verdict, signals=signals)
    (*_, cell) = json.loads(encoded(replace(build.quiet(), cells=(*before, replace(last, verdict=verdict)))))["cells"]
    assert cell["smallest_visible"] == {"step_time": None, "peak_memory": 0.1}
    known = {name: signal["visible"] for name, signal in cell["signals"].items()}
    assert known == {"step_time": None, "tail": 999.0, "disk": 1e6, "peak_memory": 0.1}  # growth is an amount per step


def test_what_cannot_be_compared_is_null_not_left_out() -> None:
    result = build.quiet()
    odd = build.told(result.cells[0].verdict, "step_time", visible=None)
    summary = through_json(replace(result, cells=(replace(result.cells[0], verdict=odd),)))
    assert summary["cells"][0]["smallest_visible"] == {"step_time": None, "peak_memory": 0.02}


def test_whose_fault_it_is() -> None:
    summary = through_json(faults.run({faults.OLD: "ggu", faults.NEW: "iib"}, variants=faults.SIGNAL))
    (one,) = summary["attribution"]
    assert (one["series"], one["scenario"], one["metric"]) == ("ngc", "signal_ops", "memory")
    assert one["findings"] == [1, 2, 3, 4]
    assert (one["cause"], one["rule"]) == ("undecided", "input in {random, variable}")
    assert one["missing"] == [
        {"series": "ngc", "image": "22.12", "host": "old", "gpu": "RTX 3090", "scenario": "signal_ops",
         "params": {"op": "rfft", "input": "random"}},
    ]  # fmt: skip
    assert one["sentence"].endswith("run 22.12 on the RTX 3090 to settle it; layer: native heap.")


FINDING = "series host gpu scenario params metric kind {} untestable effect p confirmed verdict consequence_of"
ENDS = {
    "first_bad": "last_good first_bad", "first_fixed": "last_bad first_good", "bad_from_start": "oldest_bad",
    "worse": "last_milder first_worse", "drift": "drift_from drift_to",
}  # fmt: skip


def promised(entry: str) -> set[str]:
    """Return the fields that `docs/reports.md` explains in its table of an entry."""
    table = REPORTS.read_text().split(f"An entry of `{entry}`:", 1)[1].split("\n\n")[1]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.verdict)
def test_the_fields_are_those_that_other_programs_were_promised(result: RunResult) -> None:
    summary = through_json(result)
    assert " ".join(summary) == "schema matrix verdict exit_code hosts cells findings observations attribution narrowed"
    assert {" ".join(host) for host in summary["hosts"]} == {"name engine gpus"}
    assert all(set(cell) == promised("cells") for cell in summary["cells"])
    assert all(" ".join(one) == FINDING.format(ENDS[one["kind"]]) for one in summary["findings"])
