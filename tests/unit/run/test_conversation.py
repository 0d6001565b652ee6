"""The conversation with misbehaving agents, over an engine that plays a script."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from harness.model import Trace, measured
from harness.run.engine import Exit
from harness.run.trial import messages
from harness.run.trial.conversation import CANNOT_PARK, Slice, alone
from harness.run.trial.messages import Samples
from tests.players.conversation import (
    DONE,
    HELLO,
    Clock,
    Player,
    counts,
    held,
    in_slices,
    lines,
    over_time,
    play,
    samples,
)


def test_the_start_is_the_time_until_the_agent_runs_without_its_own() -> None:
    clock = Clock()

    class Slow(Player):
        def receive(self, timeout_s: float) -> bytes | None:
            self.clock.now_s += 3.0
            return super().receive(timeout_s)

    player = Slow([lines({**HELLO, "own_s": 0.5}, DONE)], clock=clock)
    assert held(player, decide=lambda trace: "go", cancelled=lambda: False).facts.start_s == 2.5


def test_only_the_first_note_is_told_and_an_image_cannot_flood_the_terminal() -> None:
    told: list[str] = []
    notes = [{"type": "progress", "note": text} for text in ("not ready", "x", "y")]
    player = Player([lines(HELLO, *notes, DONE)])
    assert alone(in_slices(player, slices=0, on_note=told.append)).end == "completed"
    assert told == ["not ready"]


def test_looks_are_answered_with_what_was_decided_on_the_whole_trace() -> None:
    seen: list[Trace] = []

    def decide(trace: Trace) -> str:
        seen.append(trace)
        return "stop"

    look = {"type": "look", "step": 10, "look": {"rss_kib": 5.0, "unknown": 1}, "last": False}
    trial, player = play(lines(HELLO, samples(1, 5), samples(10), look, DONE), decide=decide)
    assert trial.end == "completed"
    assert player.sent == [b'{"answer": "stop"}\n']
    assert list(seen[0].step) == [1, 5, 10]
    assert seen[0].looks[0].of("rss_kib") == 5.0
    assert (trial.round, trial.image.digest, trial.facts.python) == (2, "d", "3.8.1")


def parked(step: int, *, frozen: bool = True) -> dict[str, Any]:
    return {"type": "parked", "step": step, "frozen": frozen}


def test_a_launch_in_slices_waits_for_each_and_knows_its_steps() -> None:
    """Of each slice, the first step is not timed, because it has to fill the caches again. The time of the others
    costs it nothing."""
    rows = samples(*range(1, 9), step_s=[1.0] * 8)
    player = Player([lines(HELLO, parked(1)), lines(parked(4)), lines(parked(7)), lines(rows, DONE)])
    launch = in_slices(player)
    next(launch)
    for cycle in (7, 8):
        player.clock.now_s += 1000.0
        launch.send(Slice(cycle=cycle, seconds=0.5))
    with pytest.raises(StopIteration) as ended:
        launch.send(Slice(cycle=9, seconds=0.5))
    trial = ended.value.value
    assert player.sent == [b'{"slice": 0.5}\n'] * 3
    assert (trial.end, trial.duration_s, player.left) == ("completed", 0.0, True)
    assert str(trial.trace.columns["slice"].tolist()) == "[nan, 7.0, 7.0, 7.0, 8.0, 8.0, 8.0, 9.0]"
    assert str(trial.trace.columns["step_s"].tolist()) == "[1.0, nan, 1.0, 1.0, nan, 1.0, 1.0, nan]"


def test_the_steps_of_a_slice_that_fill_the_caches_again_are_not_timed() -> None:
    """Memory-bound steps of launches in slices took 2 to 12 % longer than those of launches alone."""
    player = Player([lines(HELLO, parked(1)), lines(samples(*range(1, 12), step_s=[1.0] * 11), DONE)])
    launch = in_slices(player)
    next(launch)
    with pytest.raises(StopIteration) as ended:
        launch.send(Slice(cycle=7, seconds=0.5))
    assert np.flatnonzero(np.isnan(ended.value.value.trace.columns["step_s"])).tolist() == [1, 2, 3]


def test_a_launch_that_cannot_be_frozen_runs_to_its_end_at_once() -> None:
    """Its processes would run in the slices of the others; it was lost, and so was that of each other version."""
    rows = samples(*range(1, 9), step_s=[1.0] * 8)
    player = Player([lines(HELLO, parked(1)), lines(parked(4, frozen=False)), lines(rows, DONE)])
    launch = in_slices(player)
    next(launch)
    with pytest.raises(StopIteration) as ended:
        launch.send(Slice(cycle=7, seconds=0.5))
    trial = ended.value.value
    assert (trial.end, trial.message, trial.last_step) == ("completed", CANNOT_PARK, 40)
    assert player.sent[-1] == b'{"slice": 1e+06}\n'
    assert set(trial.trace.columns) == {"step_s"}


def test_an_image_that_claims_to_be_parked_ends_its_trial() -> None:
    trial, _ = play(lines(HELLO, parked(1)))
    assert (trial.end, trial.message) == (
        "infrastructure", "the agent's message was not understood: parked: it is alone",
    )  # fmt: skip
    launch = in_slices(Player([lines(HELLO, parked(30)), lines(parked(20))]))
    next(launch)
    launch.send(Slice(cycle=1, seconds=0.5))
    with pytest.raises(StopIteration) as ended:
        launch.send(Slice(cycle=2, seconds=0.5))
    assert "steps out of order" in ended.value.value.message


def test_an_image_that_only_parks_ends_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is that of the others, so that it never came to its limit."""
    monkeypatch.setattr(messages, "SLICES_LIMIT", 50)
    launch = in_slices(Player([lines(HELLO), *[lines(parked(1))] * 100]))
    next(launch)
    for cycle in range(50):
        launch.send(Slice(cycle=cycle, seconds=0.5))
    with pytest.raises(StopIteration) as ended:
        launch.send(Slice(cycle=50, seconds=0.5))
    assert "parked: too many slices" in ended.value.value.message


def test_a_column_that_comes_late_is_nan_before() -> None:
    trial, _ = play(lines(HELLO, samples(1, 2, rss_kib=[1.0, None]), samples(3, own=[7.0]), DONE))
    assert trial.trace is not None
    assert str(trial.trace.columns["rss_kib"].tolist()) == "[1.0, nan, nan]"
    assert str(trial.trace.columns["own"].tolist()) == "[nan, nan, 7.0]"


def test_rows_that_come_one_by_one_take_no_more_memory_than_together() -> None:
    """An image that sent one row per message filled 2 GB with data that fits into 40 MB."""
    kept = Samples(last_step=math.inf)
    most = 0
    for step in range(1, 5_001):
        kept.add({"step": np.array([float(step)]), **({"own": np.array([7.0])} if step % 2 else {})})
        most = max(most, len(kept._chunks))
    assert most < 20
    trace = kept.trace()
    assert trace is not None
    assert trace.step.tolist() == list(range(1, 5_001))
    assert np.isnan(trace.columns["own"]).tolist() == [False, True] * 2_500


@pytest.mark.parametrize(
    "said",
    [
        [DONE],
        [{**HELLO, "protocol": 2}],
        [HELLO, HELLO],
        [HELLO, samples(2, 1)],
        [HELLO, samples(41)],
        [HELLO, samples(5), samples(4)],
        [
            HELLO,
            *[samples(step, **{f"own{step}": [1.0]}) for step in range(1, 40)],
            *[samples(40, **{f"more{n}": [1.0]}) for n in range(40)],
        ],
        [HELLO, *[samples(*[1] * 100_000)] * 6],
        [HELLO, {"type": "look", "step": 11, "look": {}}],
        [HELLO, {"type": "look", "step": 41, "look": {}, "last": True}],
        [HELLO, *[{"type": "look", "step": 10, "look": {}}] * 5],
        [HELLO, {"type": "ready"}, {"type": "ready"}],
        [HELLO, {"type": "ready", "libraries": [["nested"]]}],
        [HELLO, {**DONE, "end": "good"}],
        [HELLO, {**DONE, "at_exit": "yes"}],
        [HELLO, {**DONE, "end": ["crash"]}],
        [HELLO, {**DONE, "signal": "9"}],
        [HELLO, {**DONE, "last_step": -1}],
        [HELLO, {**DONE, "output_bytes": -1}],
        [HELLO, {**DONE, "output_bytes": "many"}],
        [HELLO, {**DONE, "not_finite": ["loss"]}],
        [HELLO, {**DONE, "not_finite": {"loss": [3]}}],
        [HELLO, {**DONE, "not_finite": {"loss": [True, 1]}}],
        [HELLO, {**DONE, "not_finite": {f"loss{number}": [1, 1] for number in range(17)}}],
        [HELLO, counts(1, 41, threads=[1, 1])],
        [HELLO, counts(5, 5, threads=[1, 1])],
        [HELLO, counts(1, 2, threads=[1, -1])],
        [HELLO, counts(1, 2, threads=[1])],
        [HELLO, counts(1, 2, threads=[1, "2"])],
        [HELLO, counts(1, None, threads=[1, 2])],
        [HELLO, counts(*range(1, 20_000))],
        [HELLO, over_time(0.1, 0.1, rss_kib=[1, 1])],
        [HELLO, over_time(0.1, rss_kib=[-1])],
        [HELLO, over_time(*range(20_000))],
        [HELLO, {"type": "over_time", "columns": {"rss_kib": [1]}}],
    ],
)
def test_what_is_not_understood_says_nothing_about_the_image(said: list[dict[str, Any]]) -> None:
    trial, _ = play(lines(*said))
    assert trial.end == "infrastructure"
    assert "the agent's message was not understood" in trial.message


def test_more_values_than_any_agent_has_are_not_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "MOST_VALUES", 50_000)
    many = samples(*[1] * 300, **{f"own{n}": [1.0] * 300 for n in range(24)})
    assert play(lines(HELLO, *[many] * 6, DONE))[0].end == "completed"
    trial, _ = play(lines(HELLO, *[many] * 7))
    assert trial.end == "infrastructure"
    assert "more than 50,000 samples" in trial.message


def test_counts_are_those_of_the_newest_message_and_of_kinds_that_are_known() -> None:
    seen: list[Trace] = []

    def decide(trace: Trace) -> str:
        seen.append(trace)
        return "go"

    look = {"type": "look", "step": 10, "look": {}, "last": False}
    trial, _ = play(
        lines(
            HELLO,
            samples(1, 10),
            counts(1, 5, 10, threads=[1, 2, 3]),
            look,
            samples(20),
            counts(1, 10, 20, threads=[1, 3, None], disk=[1, 2.5, 3], own=[1, 2, 3]),
            over_time(0.05, 0.1, rss_kib=[20, None], own=[1, 2]),
            DONE,
        ),
        decide=decide,
    )
    assert seen[0].counts["threads"].tolist() == [1, 2, 3]
    assert trial.trace is not None
    assert set(trial.trace.counts) == {"step", "threads", "disk"}
    assert trial.trace.counts["step"].tolist() == [1, 10, 20]
    assert str(trial.trace.counts["threads"].tolist()) == "[1.0, 3.0, nan]"
    assert set(trial.trace.over_time) == {"at_s", "rss_kib"}
    assert str(trial.trace.over_time["rss_kib"].tolist()) == "[20.0, nan]"


def test_what_it_printed_and_returned_and_how_it_left_is_kept() -> None:
    told = {
        **DONE,
        "end": "crash",
        "at_exit": True,
        "output_head": "first",
        "output_bytes": 12,
        "not_finite": {"loss": [3, 17]},
        "buffered": "3 of 4 steps came in bursts",
        "shortfall": "no_step",
        "remedy": "function",
        "oom_in_setup": True,
    }
    trial, _ = play(lines(HELLO, samples(1), told))
    assert (trial.end, trial.failure.at_exit, trial.made_its_steps) == ("crash", True, True)
    assert (trial.output.head, trial.output.bytes) == ("first", 12)
    assert trial.not_finite == {"loss": (3, 17)}
    assert (trial.failure.shortfall, trial.failure.oom_in_setup) == ("no_step", True)
    assert trial.told.endswith("with a step_pattern")
    assert trial.output.buffered == "3 of 4 steps came in bursts"

    older, _ = play(lines(HELLO, samples(1), {**DONE, "output_head": "x" * (1 << 20), "not_finite": None}))
    assert (older.failure.at_exit, older.output.bytes, older.not_finite, older.output.buffered) == (False, None, {}, "")
    assert len(older.output.head) == 16 << 10


def test_a_last_look_between_two_that_were_asked_for_is_where_the_time_limit_was() -> None:
    look = {"type": "look", "step": 13, "look": {"rss_kib": 5.0}, "last": True}
    trial, player = play(lines(HELLO, samples(1, 13), look, {**DONE, "end": "stopped", "last_step": 13}))
    assert (trial.end, trial.last_step) == ("stopped", 13)
    assert trial.trace is not None
    assert [found.step for found in trial.trace.looks] == [13]
    assert player.sent == []


def test_sigkill_is_oom_only_by_the_engines_word() -> None:
    killed = {**DONE, "end": "infrastructure", "signal": 9, "last_step": 7}
    told = play(lines(HELLO, killed), last=Exit(exit_code=0, oom_killed=True))[0]
    assert (told.end, told.message.split(":")[0]) == ("oom", "after step 7")
    assert play(lines(HELLO, killed), last=Exit(exit_code=0))[0].end == "infrastructure"
    assert play(lines(HELLO, {**killed, "end": "crash"}), last=Exit(exit_code=0))[0].end == "infrastructure"
    starved = lines(HELLO, {**killed, "starved": True})
    assert play(starved, last=Exit(exit_code=0, oom_killed=True))[0].end == "infrastructure"


@pytest.mark.parametrize(
    ("last", "end", "text"),
    [
        (Exit(exit_code=137, oom_killed=True), "oom", "after step 3: killed by the kernel: out of memory"),
        (Exit(exit_code=137), "infrastructure", "killed from outside"),
        (Exit(exit_code=1), "infrastructure", "exit code 1"),
        (Exit(error="lost"), "infrastructure", "exit code unknown: lost"),
    ],
)
def test_an_end_without_a_result_is_what_the_engine_says(last: Exit, end: str, text: str) -> None:
    trial, _ = play(lines(HELLO, samples(1, 2, 3)), last=last)
    assert (trial.end, trial.last_step) == (end, 3)
    assert text in trial.message


def test_an_agent_that_never_starts_is_told_with_the_output_and_what_to_do() -> None:
    trial, _ = play(b"== Banner ==\nno driver\n", last=Exit(exit_code=1, stderr_tail="exec: python3: not found\n"))
    assert trial.end == "infrastructure"
    assert "exec: python3: not found" in trial.message
    assert "the image's entrypoint or Python did not start the agent; write `entrypoint: false`, or" in trial.message
    assert "Banner" in trial.output.tail
    no_exec = Exit(exit_code=1, error="exec /usr/bin/python3: exec format error")
    for ended, has_entrypoint, hint in (
        (Exit(exit_code=1), False, "exit code 1; its Python did not start"),
        (no_exec, True, "exec format error; the program that this names is for another processor than the host's"),
    ):
        assert play(b"", last=ended, has_entrypoint=has_entrypoint)[0].message.endswith(hint)


def test_a_python_that_does_not_start_is_told_by_its_reason() -> None:
    """The reason was `<no Python frame>`, the last line, and only the entrypoint was blamed."""
    said = "Fatal Python error: init\nModuleNotFoundError: No module named 'encodings'\n\n  <no Python frame>\n"
    trial, _ = play(b"", last=Exit(exit_code=1, stderr_tail=said))
    assert "before the agent started: ModuleNotFoundError: No module named 'encodings'; the image's" in trial.message


def test_what_the_entrypoint_said_is_kept_beside_what_the_scenario_printed() -> None:
    """It may be the only message about a driver that is too old."""
    said = b"== Banner ==\ndriver too old\n" * 1000
    trial, _ = play(said + lines(HELLO, {**DONE, "end": "crash", "output_tail": "Traceback\nboom\n"}))
    assert trial.output.tail.endswith("driver too old\nTraceback\nboom\n")
    assert len(trial.output.tail) < 10_000
    assert play(lines(HELLO, {**DONE, "output_tail": "printed\n"}))[0].output.tail == "printed\n"


def test_silence_is_an_end() -> None:
    assert "did not start within 120 s" in play(None)[0].message
    assert "lost: no message from the agent" in play(lines(HELLO), None)[0].message


def test_an_agent_that_speaks_for_ever_is_given_up() -> None:
    """Such an image held its lane, and the sweep never ended."""
    player = Player([lines(HELLO)])

    def receive(timeout_s: float) -> bytes | None:
        player.clock.now_s += 1.0
        return player.script.pop() if player.script else lines({"type": "progress", "step": 1})

    player.receive = receive  # type: ignore[method-assign]
    trial = held(player)
    assert trial.end == "infrastructure"
    assert trial.message == "given up after 300 s: the agent still responds, but should have ended the trial"
    assert player.clock.now_s < 310


def test_the_time_in_which_the_harness_judges_is_none_of_the_trials() -> None:
    """A slow judge would end quiet trials."""
    player = Player([lines(HELLO, samples(1), {"type": "look", "step": 10, "look": {}}), lines(DONE)])

    def decide(trace: Trace) -> str:
        player.clock.now_s += 10_000.0
        return "go"

    assert held(player, decide=decide).end == "completed"


def test_a_credential_in_the_images_environment_is_not_kept() -> None:
    """NVIDIA_API_KEY matches the names whose values may be reported, and was in each trial file."""
    environment = {"NVIDIA_API_KEY": "nvapi-0123456789", "NVIDIA_VISIBLE_DEVICES": "all", "TF_URL": "https://a:b@c/"}
    trial, _ = play(lines({**HELLO, "environment": environment}, DONE))
    assert trial.facts.environment == {
        "NVIDIA_API_KEY": "[withheld]", "NVIDIA_VISIBLE_DEVICES": "all", "TF_URL": "[withheld]",
    }  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": ["x"]}, {"gpus": {"uuid": "x"}}, {"gpus": [{"uuid": 1}]}, {"gpus": [{"processes": "many"}]},
        {"environment": ["x"]}, {"environment": {"NVIDIA_X": 1}}, {"packages": [1]}, {"wheels": "x"},
        {"rlimits": {"stack": 1}}, {"cgroup": "x"}, {"cgroup": {"limit_bytes": "x"}}, {"python": 3.8},
        {"environment_names": "PATH"}, {"page_kib": "4"}, {"page_kib": -4}, {"gpu_problem": ["x"]},
    ],
)  # fmt: skip
def test_facts_of_a_wrong_type_are_refused_on_receipt(fields: dict[str, Any]) -> None:
    """A list in place of a record ended the whole sweep with an AttributeError, far from where it was received."""
    trial, _ = play(lines({**HELLO, **fields}, DONE))
    assert trial.end == "infrastructure"
    assert f"not understood: hello: {next(iter(fields))}: " in trial.message


def test_interrupted_at_once() -> None:
    trial, _ = play(None, cancelled=lambda: True)
    assert trial.end == "interrupted"
    assert not trial.measured
