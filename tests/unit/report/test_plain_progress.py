"""Progress must help the user who watches, and never harm the run."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from rich.console import Console

from harness.cli.results import SoFar
from harness.model import ProgressListener
from harness.model.watching import EndedTrial, Waiting
from harness.report.terminal.progress import (
    LaneState,
    LenientStream,
    LiveProgress,
    PlainProgress,
    live_progress,
    open_progress,
    plain_progress,
)
from harness.store import RunDirectory
from tests.players import build

CELL = "multidict 6.3.0 on local: multidict_pop"


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(io.StringIO):
    """A pipe whose reader has ended."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def a_run(watch: ProgressListener, *, lane: str = "local") -> None:
    watch.plan(most={lane: 3}, exact=True, about={})
    watch.preparing(lane=lane, image="6.3.0", text="installing multidict==6.3.0")
    watch.preparing(lane=lane, image="6.3.0", text="installing: 50 %")
    watch.trial_started(lane=lane, cell=CELL, number=1, steps=4000, most_s=1200.0)
    for step in range(100, 1100, 100):
        watch.step(lane=lane, step=step, rss_kib=30_000 + 8.0 * step)
    watch.trial_ended(EndedTrial(lane=lane, cell=CELL, text="leak 7.84 KiB/step", bad=True))
    watch.trial_ended(EndedTrial(lane=lane, cell=CELL, text="flat to step 500", bad=False, reused=True))
    watch.trial_ended(EndedTrial(lane=lane, cell=CELL, text="leak 7.84 KiB/step", bad=True, reused=True))
    watch.note("host old is gone")


def test_plain_lines() -> None:
    stream = io.StringIO()
    with plain_progress(stream) as watch:
        a_run(watch)
    assert stream.getvalue().splitlines() == [
        "image local: 6.3.0: installing multidict==6.3.0",
        "BAD multidict 6.3.0 on local: multidict_pop: leak 7.84 KiB/step",
        "note host old is gone",
        "known 2 launches from earlier runs, 1 of them bad",
    ]
    assert "\r" not in stream.getvalue()


def test_a_note_is_told_once_in_a_command() -> None:
    """While another sweep ran, `try` told the same long note with each batch of launches."""
    stream, told = io.StringIO(), set[str]()
    for _ in range(2):
        with plain_progress(stream, told=told) as watch:
            for _ in range(2):
                watch.preparing(lane="local", image="lease", text=Waiting("waiting: this host is in use"))
                watch.trial_started(lane="local", cell=CELL, number=1, steps=4000, most_s=1200.0)
                watch.note("host old is gone")
    assert stream.getvalue().splitlines() == ["note local: waiting: this host is in use", "note host old is gone"]


def test_progress_that_an_image_sends_without_end_does_not_fill_the_memory() -> None:
    """The rate of growth is still that of the second half of the steps."""
    lane = LaneState(elapsed_s=float)
    lane.begin_trial(CELL, steps=10**6)
    for step in range(100_000):
        lane.sample(step, 30_000 + 8.0 * step)
    assert len(lane.newest.samples) < 1000
    assert lane.newest.rate_kib_per_step() == pytest.approx(8.0)


def test_who_waits_for_a_host_sees_that_it_still_waits() -> None:
    """One line and then silence for a quarter of an hour looked like a hang."""
    stream, clock = io.StringIO(), Clock()
    with plain_progress(stream, clock=clock) as watch:
        for now_s in range(0, 150, 10):
            clock.now_s = now_s
            watch.preparing(
                lane="local", image="lease", text=Waiting("waiting: this host is in use by root@lab, process 4711")
            )
    line = "local: waiting: this host is in use by root@lab, process 4711"
    assert stream.getvalue().splitlines() == [f"note {line}", f"after 1 min, {line}", f"after 2 min, {line}"]


def test_a_log_has_a_line_where_a_cell_ends_otherwise_and_one_a_minute() -> None:
    """A sweep of 36 launches printed 46 lines, `launch 1, about 36, at most 108` in each."""
    stream, clock = io.StringIO(), Clock()
    with plain_progress(stream, clock=clock) as watch:
        watch.plan(most={"local": 12}, exact=False, about={"local": 9})
        for number in range(1, 7):
            watch.trial_started(lane="local", cell=CELL, number=number, steps=4000, most_s=1200.0)
            clock.now_s = 20 * number
            watch.step(lane="local", step=1, rss_kib=None)
            watch.trial_ended(EndedTrial(lane="local", cell=CELL, text="flat", bad=number == 5))
    assert stream.getvalue().splitlines() == [
        f"cell {CELL}: flat",
        "after 1 min, local: launch 2, about 9, at most 12; multidict 6.3.0: multidict_pop #3; "
        "about 2 min 20 s left, <= 3 min 20 s",
        f"BAD {CELL}: flat",
        "after 2 min, local: launch 5, about 9, at most 12; multidict 6.3.0: multidict_pop #6; "
        "about 1 min 20 s left, <= 2 min 20 s",
        f"cell {CELL}: flat",
    ]


def test_the_time_left_does_not_jump_while_launches_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions took turns for 20 s in each round. The time left doubled until the first of them had ended."""
    clock, told, thread = Clock(), [], [0]
    monkeypatch.setattr(threading, "get_ident", lambda: thread[0])
    lane = LaneState(elapsed_s=clock)
    lane.plan(most=8, exact=True, about=0)
    for _ in range(3):
        for thread[0] in (1, 2):
            lane.begin_trial(CELL, steps=4000, most_s=1200.0)
        for _ in range(4):
            clock.now_s += 5
            told.append(lane.left)
        for thread[0] in (1, 2):
            lane.end_trial(reused=False, replicate=False)
            told.append(lane.left)
    assert list(dict.fromkeys(told)) == ["", "1 min left", "50 s left", "40 s left", "30 s left", "20 s left"]


def test_the_time_that_was_asked_for_bounds_the_time_left() -> None:
    """`try --serve --time 2m` told that 3 min 21 s were left."""
    clock = Clock()
    lane = LaneState(elapsed_s=clock)
    lane.plan(most=30, exact=False, about=9, time_s=150)
    assert lane.left == "≤ 2 min 30 s left (--time)"
    told = []
    for _ in range(8):
        lane.begin_trial(CELL, steps=4000, most_s=1200.0)
        clock.now_s += 20
        lane.end_trial(reused=False, replicate=False)
        told.append(lane.left)
    assert told[:2] == ["≤ 2 min 10 s left (--time)", "≤ 1 min 50 s left (--time)"]
    assert told[5] == "≤ 30 s left (--time)"
    assert told[-1] == "no launch begins any more (--time)"
    other = LaneState(elapsed_s=clock)
    other.plan(most=30, exact=False, about=3, time_s=200)
    other.begin_trial(CELL, steps=4000, most_s=1200.0)
    clock.now_s += 20
    other.end_trial(reused=False, replicate=False)
    assert other.left.startswith("about ")
    assert other.left.endswith(" left, ≤ 3 min (--time)")


def test_known_launches_are_told_before_the_first_new_one() -> None:
    """A rerun of a large matrix printed thousands of lines that its user had seen before."""
    stream = io.StringIO()
    with plain_progress(stream) as watch:
        for _ in range(3):
            watch.trial_ended(EndedTrial(lane="local", cell=CELL, text="flat", bad=False, reused=True))
        watch.trial_ended(EndedTrial(lane="local", cell=CELL, text="flat", bad=False))
    assert stream.getvalue().splitlines() == [
        "known 3 launches from earlier runs", f"cell {CELL}: flat"
    ]  # fmt: skip


def test_where_the_number_of_launches_is_not_known_no_total_is_invented() -> None:
    """A search ends when it knows enough: a half-full bar would be wrong."""
    here = bars(120, exact=False).splitlines()[0]
    assert " ".join(here.split()).startswith("local launch 1, at most 4 multidict 6.3.0: multidict_pop #2")
    assert "≤ 1 min 30 s left" in here


def test_a_twin_s_launches_are_not_counted() -> None:
    """A/A replicates measure the noise: "4 of 3" would make the reader doubt the rest."""
    stream = io.StringIO()
    live = LiveProgress(Console(file=stream, width=100), clock=Clock())
    live.plan(most={"local": 3}, exact=True, about={})
    for _ in range(3):
        live.trial_ended(EndedTrial(lane="local", cell=CELL, text="flat", bad=False))
        live.trial_ended(EndedTrial(lane="local", cell="the replicate", text="flat", bad=False, replicate=True))
    live.display.console.print(live.display.get_renderable())
    assert "3/3" in stream.getvalue()
    assert "the replicate" not in stream.getvalue()


def test_finished_trials_stay_above_the_bars() -> None:
    file = Terminal()
    with live_progress(Console(file=file, force_terminal=True, width=100)) as watch:
        a_run(watch)
    text = file.getvalue()
    assert "leak 7.84 KiB/step" in text
    assert "flat to step 500" not in text, "a trial that was known already is counted, not told"
    assert "host old is gone" in text


def bars(width: int, *, exact: bool = True, about: Mapping[str, int] | None = None) -> str:
    clock = Clock()
    console = Console(file=io.StringIO(), width=width)
    live = LiveProgress(console, clock=clock)
    live.plan(most={"local": 4, "new": 2}, exact=exact, about=about or {})
    live.trial_started(lane="local", cell=CELL, number=1, steps=4000, most_s=1200.0)
    clock.now_s = 30
    live.trial_ended(EndedTrial(lane="local", cell=CELL, text="flat", bad=False))
    live.trial_started(lane="local", cell=CELL, number=2, steps=4000, most_s=1200.0)
    for step in range(100, 1300, 100):
        live.step(lane="local", step=step, rss_kib=30_000 + 8.0 * step)
    live.preparing(lane="new", image="6.3.0", text="pulling 120/900 MiB")
    with console.capture() as captured:
        console.print(live.display.get_renderable())
    return captured.get()


def test_what_is_likely_is_told_beside_the_worst_case() -> None:
    """Only "at most 40" was shown, which hardly any sweep reaches."""
    here = bars(140, exact=False, about={"local": 3}).splitlines()[0]
    assert "launch 1, about 3, at most 4" in here
    assert "about 1 min left, ≤ 1 min 30 s" in here


def test_what_is_known_so_far_stands_above_the_bars() -> None:
    live = LiveProgress(Console(file=io.StringIO(), width=100), clock=Clock())
    live.so_far("Still running, with 3 of 12 cells measured.")
    live.so_far("Still running, with 4 of 12 cells measured. \x1b[31mred")
    with live.display.console.capture() as captured:
        live.display.console.print(live.display.get_renderable())
    assert captured.get().startswith("Still running, with 4 of 12")
    assert "\x1b" not in captured.get()


def test_the_first_launches_of_a_try_are_no_progress(tmp_path: Path) -> None:
    """Beside the first launch stood that the versions `were not compared`, as if the command had ended."""
    result, progress = build.quiet(), Mock()
    for rehearsal in (True, False):
        launched = replace(result, plan=replace(result.plan, rehearsal=rehearsal))
        SoFar(progress=progress, write_page=Mock())(Mock(return_value=launched), RunDirectory(tmp_path))
        assert progress.so_far.call_count == int(not rehearsal)


def test_a_bar_tells_the_cell_step_rate_and_time_left() -> None:
    here, new = bars(120).splitlines()
    name, *rest = here.split()
    assert name == "local"
    assert " ".join(rest) == "1/4 multidict 6.3.0: multidict_pop #2 step 1,200/4,000 · 8 KiB/step 1 min 30 s left"
    assert "0/2" in new
    assert "6.3.0: pulling 120/900 MiB" in new
    assert new.rstrip().endswith("—")


@pytest.mark.parametrize("width", [80, 100, 120])
def test_what_moves_is_never_cut(width: int) -> None:
    """The step and the rate came after a long name, and were cut off first."""
    here, _ = bars(width).splitlines()
    assert here.startswith("local ")
    assert "step 1,200/4,000 · 8 KiB/step" in here
    assert here.rstrip().endswith("1 min 30 s left")
    assert ("multidict 6.3.0: multidict_pop #2" in here) == (width >= 100)


@pytest.mark.parametrize("width", [1, 20, 59, 60, 80])
def test_bars_fit_any_width(width: int) -> None:
    assert all(len(line) <= width for line in bars(width).splitlines())
    assert len(bars(width).splitlines()) == 2


def test_no_rate_before_it_means_something_and_no_time_before_it_is_known() -> None:
    clock = Clock()
    state = LaneState(elapsed_s=clock, most=4)
    for step in range(1, 20):
        state.sample(step, 1000.0 * step)
    assert state.newest.rate_kib_per_step() is None
    state.end_trial(reused=True, replicate=False)
    assert state.left == ""
    state.begin_trial(CELL, steps=4000, most_s=1200.0)
    clock.now_s = 10
    state.end_trial(reused=False, replicate=False)
    assert state.left == "20 s left"
    state.end_trial(reused=False, replicate=False)
    state.end_trial(reused=False, replicate=False)
    assert state.left == ""


def test_a_first_launch_that_lasts_says_when_it_ends_and_counts_no_samples_as_steps() -> None:
    """For 20 minutes, a command that never ends showed `step 11,240/4,000` and a dash."""
    clock, lines = Clock(), io.StringIO()
    live = LiveProgress(Console(file=lines, width=120, force_terminal=True), clock=clock)
    live.plan(most={"local": 36}, exact=False, about={"local": 20})
    live.trial_started(lane="local", cell="N 1: sh", number=1, steps=None, most_s=1200.0)
    live.step(lane="local", step=600, rss_kib=2000.0)
    for now_s, left in ((20, "—"), (60, "this launch is cut off in ≤ 19 min")):
        clock.now_s = now_s
        live._pen.console.print(live._lines())
        told = lines.getvalue().splitlines()[-1]
        assert told.rstrip().endswith(left)
        assert "step" not in told


@pytest.mark.parametrize(
    ("stream", "environ", "live"),
    [
        (Terminal(), {"TERM": "xterm-256color"}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "xterm", "CI": "true"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_bars_only_where_they_can_be_drawn(stream: io.StringIO, environ: Mapping[str, str], *, live: bool) -> None:
    with open_progress(stream, environ) as watch:
        assert isinstance(watch, LiveProgress if live else PlainProgress)


def closed() -> io.StringIO:
    stream = Terminal()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [Gone(), closed()], ids=["broken pipe", "closed"])
def test_nobody_listening_harms_nothing(stream: io.StringIO) -> None:
    with plain_progress(stream) as watch:
        a_run(watch)
    lenient = LenientStream(stream)
    with live_progress(Console(file=lenient, force_terminal=True, width=80)) as watch:  # type: ignore[arg-type]
        a_run(watch)
    assert lenient.lost


def test_a_real_pipe_without_a_reader_harms_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    with open_progress(stream, {}) as watch:
        a_run(watch)
    with pytest.raises(BrokenPipeError):
        stream.close()


@pytest.mark.parametrize("live", [True, False])
def test_a_terminal_without_unicode(tmp_path: Path, *, live: bool) -> None:
    stream = (tmp_path / "log").open("w", encoding="ascii")
    console = Console(file=LenientStream(stream), force_terminal=True, width=80)  # type: ignore[arg-type]
    with stream, live_progress(console) if live else plain_progress(stream) as watch:
        a_run(watch)
        watch.note("5 µs ≤ 7 µs, 🙂 \x1b[31m[red]")
    text = (tmp_path / "log").read_text(encoding="ascii")
    assert "5 us <= 7 us, ? [red]" in text
    assert "leak 7.84 KiB/step" in text


@pytest.mark.parametrize("live", [True, False])
def test_many_threads_lose_no_line(*, live: bool) -> None:
    stream = Terminal()
    context = live_progress(Console(file=stream, force_terminal=True, width=100)) if live else plain_progress(stream)
    with context as watch:
        threads = [threading.Thread(target=a_run, args=(watch,), kwargs={"lane": f"lane{n}"}) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert stream.getvalue().count("leak 7.84 KiB/step") == 8


def test_launches_side_by_side_are_all_named() -> None:
    """A single bar for several launches must not look as if the others had disappeared."""
    state, begun, checked = LaneState(elapsed_s=Clock()), threading.Event(), threading.Event()

    def other() -> None:
        state.begin_trial("b #1", steps=10, most_s=1200.0)
        begun.set()
        checked.wait(10)
        state.end_trial(reused=False, replicate=False)

    state.begin_trial("a #1", steps=10, most_s=1200.0)
    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(10)
    assert state.activity == "2 side by side: a #1, b #1"
    checked.set()
    thread.join(10)
    assert state.activity == "a #1"


def test_a_line_of_the_live_display_does_not_wrap_at_80_columns() -> None:
    """The number of launches was wrapped: `launch 1, about 36, at most` and, on the next line, `108`."""
    live = LiveProgress(Console(file=io.StringIO(), width=80), clock=Clock())
    live.plan(most={"local": 108}, exact=False, about={"local": 36})
    live.trial_started(lane="local", cell=CELL, number=1, steps=4000, most_s=1200.0)
    with live.display.console.capture() as captured:
        live.display.console.print(live.display.get_renderable())
    (line,) = captured.get().splitlines()
    assert "launch 0, about 36, at most 108" in line


def test_a_launch_that_was_too_short_to_contradict_a_bad_one_is_no_news() -> None:
    """`BAD …: memory of the workers` was followed by `cell …: flat to step 592`, of a launch that ended early."""
    out = io.StringIO()
    with plain_progress(out) as watch:
        watch.trial_ended(EndedTrial(lane="local", cell=CELL, text="flat to step 592", bad=None))
        watch.trial_ended(EndedTrial(lane="local", cell=CELL, text="growth", bad=True))
        watch.trial_ended(EndedTrial(lane="local", cell=CELL, text="flat to step 592", bad=None))
    assert out.getvalue().splitlines() == [f"cell {CELL}: flat to step 592", f"BAD {CELL}: growth"]
