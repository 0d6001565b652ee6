"""The published stories, in real containers with real wheels: what each page promises must come out.

They take about 15 minutes on two cores, most of it TensorFlow's start, and run by `make stories`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ROOT, Harness, harness

__all__ = ["harness"]  # the fixture

pytestmark = [pytest.mark.stories, pytest.mark.docker, pytest.mark.index]


def swept(harness: Harness, example: str, *options: str, codes: tuple[int, ...]) -> dict[str, str]:
    """Variant with image -> verdict."""
    ended = harness.run("sweep", str(ROOT / "examples" / f"{example}.yaml"), *options, timeout_s=900)
    assert ended.code in codes, ended.err
    summary = harness.summary(example)
    return {f"{cell['image']} {cell['scenario']} {_params(cell)}".strip(): cell["verdict"] for cell in summary["cells"]}


def _params(cell: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in cell["params"].items())


def probed(harness: Harness, example: str, *options: str) -> tuple[list[dict[str, Any]], Path, str]:
    ended = harness.run("probe", str(ROOT / "examples" / f"{example}.yaml"), *options, timeout_s=900)
    assert ended.code == 0, ended.err
    directory = harness.folder / "reports" / f"{example}-probes" / "latest"
    return json.loads((directory / "probes.json").read_text()), directory, ended.out


def test_signal_the_eager_transform_leaks_and_the_graph_does_not(harness: Harness) -> None:
    verdicts = swept(harness, "signal", codes=(1,))
    assert verdicts["2.16.2 eager batch=4"] == "leak"
    assert verdicts["2.17.1 eager batch=4"] in ("flat", "plateau")
    assert {verdict for cell, verdict in verdicts.items() if " graph " in cell} <= {"flat", "plateau"}


def test_signal_the_trace_names_the_transform(harness: Harness) -> None:
    found, directory, _ = probed(harness, "signal", "--series", "tensorflow", "--only", "graph op=rfft input=random")
    for each in found:
        assert any(row["kind"] == "RFFT" and row["ms"][0] > 0 for row in each["ops"])
    for trace in directory.glob("*/step-*.trace.json"):
        events = json.loads(trace.read_text())["traceEvents"]
        assert any(event["name"] == "RFFT" and event["dur"] > 0 for event in events)


def test_pipeline_serialized_tensors_make_files_ten_times_larger(harness: Harness) -> None:
    found, directory, text = probed(harness, "pipeline")
    tables = [each for each in found if each["probe"] == "lines"]
    assert len(tables) == 4
    for each in tables:
        (run,) = [row for row in each["functions"][0]["rows"] if "session.run" in row["text"]]
        assert run["hits"] == run["occurrences"] == 50
    assert "Mem usage" in text
    assert len(list(directory.glob("*/order.svg"))) == 4


def test_pressure_is_a_plateau_and_never_a_leak(harness: Harness) -> None:
    verdicts = swept(harness, "pressure", codes=(0, 4))
    assert set(verdicts.values()) <= {"flat", "plateau", "inconclusive"}  # a busy machine decides less
    assert "plateau" in verdicts.values()
    peaks = {_params(cell): cell["peak_rss_mib"] for cell in harness.summary("pressure")["cells"]}
    by_calls = [
        next(peak for params, peak in peaks.items() if f"parallel_calls={n} prefetch=0" in params) for n in (1, 8)
    ]
    assert by_calls[1] > by_calls[0] + 16  # seven more arrays of 4 MiB, less what is freed meanwhile
    ended = harness.run("frontier", "reports/pressure/latest")
    assert ended.code == 0
    assert "\n* " in ended.out


def test_ort_native_valgrind_counts_what_each_variant_loses(harness: Harness) -> None:
    """Ten names and eleven metadata entries a session, in both versions."""
    found, _, _ = probed(harness, "ort_native", "--only", "native*")
    lost = {
        (each["image"], each["params"]["names"], each["params"]["metadata"]): sum(
            leak["blocks_a_step"] for leak in each["leaks"] if leak["kind"] == "DefinitelyLost"
        )
        for each in found
    }
    for version in ("1.20.1", "1.22.1"):
        assert lost[version, "leaked", "leaked"] == pytest.approx(21, abs=0.5)
        assert lost[version, "leaked", "owned"] == pytest.approx(10, abs=0.5)
        assert lost[version, "owned", "leaked"] == pytest.approx(11, abs=0.5)
        assert lost[version, "owned", "owned"] == 0


def test_ort_native_freed_twice_is_a_crash(harness: Harness) -> None:
    verdicts = swept(harness, "ort_native", "--only", "twice*", codes=(1,))
    assert set(verdicts.values()) == {"crash"}


def test_graph_memory_the_largest_tensors_are_what_arithmetic_says(harness: Harness) -> None:
    found, _, text = probed(harness, "graph_memory")
    sizes, fits = sorted(found, key=lambda each: each["probe"] == "largest")
    predicted = [row for row in sizes["ops"] if row["expected_bytes"] is not None]
    assert len(predicted) == 12
    assert all(row["bytes"] == row["expected_bytes"] for row in predicted)
    assert fits["largest"] is not None
    assert any(each["end"] == "oom" for each in fits["tries"])
    assert f"largest batch that fits: {fits['largest']}" in text
