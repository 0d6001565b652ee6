"""The published stories, in real containers with real wheels: what each page promises must come true.

`make stories` runs them. Most of the time goes into building images and starting TensorFlow.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ROOT, Harness, harness

__all__ = ["harness"]  # the fixture

pytestmark = [pytest.mark.stories, pytest.mark.docker, pytest.mark.index, pytest.mark.timeout(1800)]
TIMEOUT_S = 1500  # only against hangs: two images of 1.3 GB may be built in it, on a busy machine

PLANTED = """\
\"\"\"One operation gets 2 ms slower with each step, a longer one does not.\"\"\"
import time


def setup():
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    made = [0]

    def sleeping(name, base_s, more_s):
        def sleep():
            time.sleep(base_s + more_s * made[0])
            return 1.0

        return tf.cast(tf.numpy_function(sleep, [], tf.float64, name=name), tf.float32)

    total = sleeping("slower", 0.04, 0.002) + sleeping("steady", 0.1, 0)
    session = tf.compat.v1.Session()

    def step():
        made[0] += 1
        session.run(total)

    return step
"""
PLANTED_MATRIX = f"""\
version: 1
series:
  tensorflow:
    build: {ROOT}/images/tensorflow-cpu
    arg: TENSORFLOW_CPU
    args: {{BASE: "${{HARNESS_BASE:-python:3.11-slim-bookworm}}"}}
    versions: ["2.16.2"]
hosts: {{here: {{engine: docker}}}}
scenarios:
  planted: {{script: planted_op.py, timeout: 5m, probes: {{optrace: {{at: [10, 60], repeat: 5}}}}}}
"""


def swept(harness: Harness, example: str, *options: str, codes: tuple[int, ...]) -> dict[str, str]:
    """Return (variant, image) -> verdict."""
    ended = harness.run("sweep", str(ROOT / "examples" / f"{example}.yaml"), *options, timeout_s=TIMEOUT_S)
    assert ended.code in codes, ended.err
    summary = harness.summary(example)
    return {f"{cell['image']} {cell['scenario']} {_params(cell)}".strip(): cell["verdict"] for cell in summary["cells"]}


def _params(cell: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in cell["params"].items())


def probed(
    harness: Harness, example: str, *options: str, folder: Path = ROOT / "examples"
) -> tuple[list[dict[str, Any]], Path, str]:
    ended = harness.run("probe", str(folder / f"{example}.yaml"), *options, timeout_s=TIMEOUT_S)
    assert ended.code == 0, ended.err
    directory = harness.folder / "reports" / f"{example}-probes" / "latest"
    return json.loads((directory / "probes.json").read_text()), directory, ended.out


def test_signal_the_eager_transform_leaks_and_the_graph_does_not(harness: Harness) -> None:
    verdicts = swept(harness, "signal", "--trials", "2:2", codes=(1,))
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


def test_signal_a_planted_slow_operation_is_ranked_first_with_its_times(harness: Harness) -> None:
    """This is how the story's author found rfft: TensorFlow's own step stats, early compared with late, within 10 %."""
    (harness.folder / "planted_op.py").write_text(PLANTED)
    (harness.folder / "planted.yaml").write_text(PLANTED_MATRIX)
    (found,), _, _ = probed(harness, "planted", folder=harness.folder)
    slower, *others = found["ops"]
    assert slower["op"] == "slower"
    assert slower["ms"] == pytest.approx([40 + 2 * 12, 40 + 2 * 62], rel=0.1)
    assert next(row for row in others if row["op"] == "steady")["ms"] == pytest.approx([100, 100], rel=0.1)


def test_pipeline_serialized_tensors_make_files_ten_times_larger(harness: Harness) -> None:
    found, directory, text = probed(harness, "pipeline")
    tables = [each for each in found if each["probe"] == "lines"]
    assert len(tables) == 4
    for each in tables:
        (run,) = [row for row in each["functions"][0]["rows"] if "session.run" in row["text"]]
        assert run["hits"] == run["occurrences"] == 50
    assert "Mem usage" in text
    assert len(list(directory.glob("*/order.svg"))) == 4


def test_pipeline_resizing_takes_scikit_image_many_times_longer_than_opencv(harness: Harness) -> None:
    """About a hundred times in the story and here; a busy machine changes either time by less than a factor of ten."""
    verdicts = swept(harness, "pipeline", "--only", "resize*", "--trials", "1:1", codes=(0, 4))
    assert set(verdicts.values()) <= {"flat", "plateau", "inconclusive"}
    took_ms = {cell["params"]["library"]: cell["step_ms"] for cell in harness.summary("pipeline")["cells"]}
    assert took_ms["skimage"] > 10 * took_ms["opencv"]


def test_pressure_is_a_plateau_and_never_a_leak(harness: Harness) -> None:
    verdicts = swept(harness, "pressure", "--only", "pressure*prefetch=0*", "--trials", "2:2", codes=(0, 4))
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
    """Ten names and eleven metadata entries per session, in both versions."""
    wanted = ("native names=leaked metadata=leaked*", "native names=owned*")
    found, _, _ = probed(harness, "ort_native", *(word for each in wanted for word in ("--only", each)))
    lost = {
        (each["image"], each["params"]["names"], each["params"]["metadata"]): sum(
            leak["blocks_a_step"] for leak in each["leaks"] if leak["kind"] == "DefinitelyLost"
        )
        for each in found
    }
    for version in ("1.20.1", "1.22.1"):
        assert lost[version, "leaked", "leaked"] == pytest.approx(21, abs=0.5)
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
