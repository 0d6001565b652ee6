"""The main job, end to end, as a user runs it: on processes and on a real Docker Engine, by changing one line."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from harness.store.trial_json import read_trial, trial_files
from tests.integration.conftest import DOCKER_AT_NIGHT, ENGINES, ROOT, Harness
from tests.nightly import at_night
from tests.players.planted import NO_LEVELS, causes, changes, planted

# Versions of one small real wheel; `planted` reads PLANTED_VERSION and turns bad in the versions that it is given.


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_bad_version_is_named(harness: Harness, engine: str) -> None:
    """The main purpose of the tool."""
    matrix = harness.write(planted(engine=engine, params="{fault: [none, leak], bytes: 24576, since: 1.15.0}"))
    ended = harness.run_here("sweep", matrix)
    assert ended.code == 1, ended.err
    summary = harness.summary()
    assert summary["verdict"] == "regression"
    assert changes(summary) == [("memory", "first_bad", "1.14.0", "1.15.0")]
    (finding,) = causes(summary)
    assert finding["params"]["fault"] == "leak"
    assert finding["effect"]["value"] == pytest.approx(24, rel=0.05)
    quiet = [cell for cell in summary["cells"] if cell["params"]["fault"] == "none"]
    assert {cell["verdict"] for cell in quiet} <= {"flat", "plateau"}
    assert all(cell["excluded_kib_per_step"] < 0.5 for cell in quiet)
    assert "1.15.0" in ended.out
    for name in ("report.md", "report.html", "junit.xml", "plan.json"):
        assert (harness.folder / "reports/matrix/latest" / name).stat().st_size > 0


@pytest.mark.parametrize("engine", DOCKER_AT_NIGHT)
def test_a_crash_is_blamed_on_the_version_that_crashes(harness: Harness, engine: str) -> None:
    """A segmentation fault in one version must not affect the rest of the sweep, or the next version."""
    params = "{fault: segfault, at: 20, since: 1.14.0, until: 1.15.0}"
    matrix = harness.write(planted(engine=engine, params=params, versions='["1.13.0", "1.14.0", "1.15.0"]'))
    assert harness.run_here("sweep", matrix).code == 1
    summary = harness.summary()
    assert changes(summary) == [
        ("outcome", "first_bad", "1.13.0", "1.14.0"),
        ("outcome", "first_fixed", "1.14.0", "1.15.0"),
    ]
    crashed = next(cell for cell in summary["cells"] if cell["image"] == "1.14.0")
    assert (crashed["verdict"], crashed["signal"]) == ("crash", 11)


OTHER_PAIRS = at_night("by day each signal ends a sweep on one engine, and each engine's sweep is ended by one signal")


def launches(harness: Harness) -> set[str]:
    """Return the time at which each trial of the journal started."""
    return {read_trial(path).started for path in harness.trial_files()}


@pytest.mark.parametrize("engine", DOCKER_AT_NIGHT)
def test_what_is_known_is_not_run_again(harness: Harness, engine: str) -> None:
    """Known trials are not run twice, and a changed script must not get the old result."""
    versions = '["1.15.0", "1.16.0"]'
    (harness.folder / "quiet.py").write_text('"""Nothing."""\n\n\ndef setup():\n    return lambda: None\n')
    text = planted(engine=engine, params="{}", versions=versions, limits=NO_LEVELS).replace(
        f"{ROOT}/scenarios/planted.py", "quiet.py"
    )
    matrix = harness.write(text)
    assert harness.run_here("sweep", matrix).code == 0
    first = launches(harness)
    assert harness.run_here("sweep", matrix).code == 0
    assert launches(harness) == first
    (harness.folder / "quiet.py").write_text('"""Changed."""\n\n\ndef setup():\n    return lambda: None\n')
    assert harness.run_here("sweep", matrix).code == 0
    used = sum(cell["trials"] for cell in harness.summary()["cells"])
    assert len(launches(harness) - first) >= used > 0


@pytest.mark.kills
@pytest.mark.parametrize(
    ("number", "engine"),
    [
        pytest.param(signal.SIGINT, "docker", marks=pytest.mark.docker),
        (signal.SIGTERM, "process"),
        pytest.param(signal.SIGTERM, "docker", marks=[pytest.mark.docker, OTHER_PAIRS]),
        pytest.param(signal.SIGINT, "process", marks=OTHER_PAIRS),
    ],
)
def test_an_interrupted_sweep_cleans_up_and_resumes(
    harness: Harness, engine: str, number: signal.Signals, request: pytest.FixtureRequest
) -> None:
    """Ctrl-C must leave no container, and lose no measurement."""
    matrix = harness.write(
        planted(
            engine=engine,
            params="{fault: none, work_us: 400}",
            limits=NO_LEVELS,
        )
    )
    process = harness.start("sweep", matrix)
    harness.wait_for_trials(2)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    if engine == "docker":
        names: Callable[[], list[str]] = request.getfixturevalue("our_containers")
        assert names() == []
    assert harness.summary()["verdict"] == "interrupted"
    measured = {read_trial(path).started for path in harness.trial_files()}
    assert harness.run_here("sweep", matrix).code == 0
    latest = trial_files(harness.folder / "reports/matrix/latest")
    assert measured <= {read_trial(path).started for path in latest}


def test_hosts_that_cannot_be_reached_are_said_one_line_each(harness: Harness) -> None:
    """On a laptop, the story's matrix must say what is missing, and blame no image."""
    text = planted(engine="process", params="{}").replace(
        "  here: {engine: process}", '  one: {engine: "tcp://127.0.0.1:9"}\n  two: {engine: "tcp://127.0.0.1:10"}'
    )
    ended = harness.run_here("sweep", harness.write(text))
    assert ended.code == 3
    for line, port in ((9, 9), (10, 10)):
        assert f"matrix.yaml:{line}: hosts." in ended.err
        assert f"127.0.0.1:{port}" in ended.err
    assert {cell["verdict"] for cell in harness.summary()["cells"]} == {"untested"}


def test_json_is_all_that_goes_to_stdout(harness: Harness) -> None:
    """Other programs read the output through a pipe."""
    ended = harness.run("sweep", harness.write(planted(engine="process", params="{}", versions='["1.16.0"]')), "--json")
    assert json.loads(ended.out) == harness.summary()


@pytest.mark.parametrize("engine", DOCKER_AT_NIGHT)
def test_an_exit_code_alone_can_decide(harness: Harness, engine: str) -> None:
    """An existing test suite must work as a scenario, as with `git bisect run`."""
    program = "import six, sys\nsys.exit({'1.14.0': 125, '1.15.0': 1}.get(six.__version__, 0))\n"
    (harness.folder / "check.py").write_text(program)
    versions = '["1.13.0", "1.14.0", "1.15.0", "1.16.0"]'
    head = planted(engine=engine, params="{}", versions=versions).split("scenarios:")[0]
    scenario = "scenarios: {check: {command: [python3, check.py], files: [check.py], judge: exit}}\n"
    ended = harness.run_here("sweep", harness.write(f"{head}{scenario}trials: {{least: 2, most: 3}}\n"))
    assert ended.code == 1, ended.err
    verdicts = {cell["image"]: cell["verdict"] for cell in harness.summary()["cells"]}
    assert verdicts == {"1.13.0": "flat", "1.14.0": "untested", "1.15.0": "crash", "1.16.0": "flat"}
    first, second = harness.summary()["findings"]
    assert (first["last_good"], first["untestable"], first["first_bad"]) == ("1.13.0", ["1.14.0"], "1.15.0")
    assert (second["last_bad"], second["first_good"]) == ("1.15.0", "1.16.0")
