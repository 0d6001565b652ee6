"""Defines records of measurements: trials and their samples."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from harness.agent.ending import last_words
from harness.model.step_kinds import adds_to_memory

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
else:
    Floats = Any  # so that commands that only list runs need not import numpy
LARGEST = 1e100
"""Largest measurement that is accepted; sums of squares of smaller ones stay finite."""
NOT_FINITE = "NaN, infinity or a number beyond 1e30"
"""What a scenario returns that is no figure: see LARGEST in `agent/result_names.py`."""

MOST_ROWS = 500_000
MOST_COLUMNS = 64
MOST_VALUES = 5_000_000
"""Most values of one trace: rows × columns. The agent has 200,000 rows of at most 25 columns."""


def beyond_any_trace(*, rows: int, columns: int) -> str:
    """Return the limit that a trace of this size exceeds; "" if it exceeds none."""
    if columns > MOST_COLUMNS:
        return f"more than {MOST_COLUMNS} columns"
    if rows > MOST_ROWS:
        return f"more than {MOST_ROWS:,} rows"
    return f"more than {MOST_VALUES:,} samples" if rows * columns > MOST_VALUES else ""


End = Literal[
    "completed",  # ran all the steps of the budget (or the command exited with 0)
    "stopped",  # stopped at a look, or at its time limit after some steps, or a program ended early: a valid trace
    "crash",  # a step raised, or the process died by a signal or by os._exit
    "oom",  # out of memory: reported by the cgroup or the engine, a MemoryError, or an error of the framework
    "hang",  # no progress past the timeout
    "setup",  # a failure before the first step: the scenario could not be tested
    "infrastructure",  # no image, lost connection, killed from outside: says nothing about the image
    "interrupted",  # Ctrl-C; never kept in the journal
]


TRACEBACK = "Traceback (most recent call last)"


_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")
"""The type of an exception, as the last line of a traceback names it."""


def gist(message: str) -> str:
    """Return the last line of a message with a traceback, which names the error, with what stands before the traceback
    on its first line, which explains it; of any other message, its last line, which tells the end, before its notes."""
    head, mark, rest = message.strip().partition(TRACEBACK)
    if not mark:
        *notes, end = message.splitlines() or [""]
        return "; ".join([end, *notes])
    last = rest.splitlines()[-1]
    return last if "\n" in head else f"{head}{last}"


LOOK_COLUMNS = frozenset(
    {
        "rss_before_kib", "rss_kib", "rss_trimmed_kib", "heap_before_kib", "heap_kib", "heap_trimmed_kib",
        "blocks_before", "blocks", "rss_anon_kib", "rss_file_kib", "rss_shmem_kib", "rss_peak_kib", "swap_kib",
        "threads", "cgroup_kib", "cpu_s", "bytes_read", "bytes_written", "left_kib",
        "gpu_kib", "gpu_process_kib", "gpu_pool_kib", "gpu_reserved_kib",
        "gpu_pool_peak_kib", "gpu_clock_mhz", "gpu_reasons", "gpu_heat_share", "gpu_power_share", "gpu_temperature_c",
        "gpu_power_w", "gpu_busy", "gpu_xid",
    }
)  # fmt: skip
"""The figures of a look.

`*_before*` precede gc.collect, and `*_trimmed` follow malloc_trim(0), at the last look only. `rss_peak_kib` is the
maximum of resident memory since the start, also inside steps. `rss_anon_kib`, `rss_file_kib` (pages of mapped files)
and `rss_shmem_kib` make up resident memory, and `swap_kib` is what was moved out of it. `cpu_s` is the processor time
of the scenario and its descendants since the first step, `bytes_read` and `bytes_written` what they moved by system
calls since then, also through pipes and sockets. `left_kib` is what a program that goes on after its steps leaves on
the disk at its end.

GPUs (docs/gpu.md): memory used on the devices, by this trial's processes, and by the framework's allocator (in use, and
reserved). Since the preceding look: mean clock, the bits of all reasons that reduced it, the shares of the working time
in which heat and power reduced it, and the highest temperature, power and load (percent). `gpu_xid` is the driver's
last error. For several GPUs, memory is the sum, other figures are of the worst GPU.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """The figures of a look after `step` steps, by LOOK_COLUMNS; those of a probe that is missing are absent."""

    step: int
    values: Mapping[str, float] = field(default_factory=dict)

    def of(self, name: str) -> float | None:
        """Return a figure; None if it was not measured."""
        return self.values.get(name)


AGENT_COLUMNS = frozenset(
    {"rss_kib", "anon_kib", "heap_kib", "blocks", "step_s", "slice"}
    | {"first_token_s", "token_s", "failed"}
    | {"gpu_kib", "gpu_process_kib", "gpu_pool_kib", "gpu_reserved_kib"}
)
"""The columns that the agent measures, and `slice`. Others are metrics that the scenario returns or prints."""
OVER_TIME = ("at_s", "rss_kib", "anon_kib")
"""The columns of a trace over time."""
MOST_METRICS = 16
"""Most metrics of a trial for which the agent has columns."""


Shortfall = Literal["", "timeout", "own_end", "no_step"]
"""The reason why a trial made fewer steps than its budget without a fault: `timeout` ended it, the program ended by
itself, or no step of a program, or of a command with a pattern, was seen."""
LEAST_STEPS = 64
"""Fewest steps of a launch in which growth can be judged."""
Remedy = Literal["", "function", "longer", "command"]
_FUNCTION = (
    'name the function that trains with steps_are: {function: "module:name"} (__main__:name if the program defines it),'
    " or run the program as a command with a step_pattern"
)
REMEDIES: Mapping[Remedy, str] = {
    "": "",
    "function": _FUNCTION,
    "longer": f"raise `timeout`, so that the program ends by itself and its whole run is judged, or {_FUNCTION}",
    "command": "start that program, or measure it as a command with a step_pattern",
}
"""Advice on the matrix file for a program of which no step was seen."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """The samples of one trial; a trace is equal only to itself.

    `step` is the 1-based number of the step after which row i was sampled, shape (n,).
    `columns` are arrays of the same shape: `rss_kib` (resident memory), `anon_kib` (that part of it
    that is neither of a mapped file nor shared memory), `heap_kib`, `blocks` (Python), `step_s` (duration of the step
    itself, seconds; a request that failed has none), of requests `first_token_s`, `token_s` and `failed` (0 or 1),
    `gpu_kib`, `gpu_process_kib` and `gpu_pool_kib` as in a Look, and the scenario's own metrics. Missing samples are
    NaN. `slice` is the cycle in which a step was made, if several live launches took turns: then
    launches of a round that share cycles are pairs, and the step times at the beginning of a slice are missing.

    `counts` are sampled less often, including at looks: `step` and, of the same shape, the amounts of the growth
    signals (`open_files`, `threads`, `processes`, `zombies`; `shm`, `disk` and `worker_memory` in KiB) with `sockets`
    and `pipes`, which are among the open files, and `worker_memory_kept`, in which workers that start or end change
    nothing. Values that could not be counted are NaN.

    `over_time`, of a program or a command, is the memory of all its processes by the seconds since its start (`at_s`),
    whatever its steps are: `rss_kib` and `anon_kib`.
    """

    step: Floats
    columns: Mapping[str, Floats]
    looks: tuple[Look, ...] = ()
    counts: Mapping[str, Floats] = field(default_factory=dict)
    over_time: Mapping[str, Floats] = field(default_factory=dict)

    def column(self, name: str) -> Floats | None:
        """Return a column, or None if it was not sampled."""
        return self.columns.get(name)

    @property
    def metrics(self) -> Mapping[str, Floats]:
        """Return the columns that the scenario returned."""
        return {name: values for name, values in self.columns.items() if name not in AGENT_COLUMNS}


SHOWN_ROWS = 240
"""Most rows of a trace that reports show; the journal keeps all rows."""
LEAST_SHOWN_ROWS = 16
"""Fewest rows of a trace that reports show."""
HELD_ROWS = 480_000
"""Most rows that all traces of a run hold in memory together: about 30 MB."""


def shown_rows(trials: int) -> int:
    """Return how many rows of each trace are kept for the reports of a run with `trials` trials."""
    return max(LEAST_SHOWN_ROWS, min(SHOWN_ROWS, HELD_ROWS // max(1, trials)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Printed:
    """The output of a scenario: the beginning, the end, one line of each form between them, and the size in bytes after
    its first step (None: no step). `buffered`: why the rows of a command are not steps (its output came in bursts); ""
    if they are."""

    head: str = ""
    middle: str = ""
    tail: str = ""
    bytes: int | None = None
    buffered: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The budget of a launch: its steps, the limit on the seconds in steps (None: there was no limit), and the time
    limit of the whole launch (None: it is not known)."""

    steps: int = 0
    time_s: float | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchedImage:
    """The image of a launch. `digest` is part of the trial's key. `reference`: what the engine launched, an image's id
    or an interpreter's path. `bytes`: its size on disk."""

    digest: str = ""
    reference: str = ""
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions:
    """The conditions under which a launch ran. `cold`: the first launch of an image that was pulled, built or installed
    in this run, whose files were not yet in memory. `disturbed`: why its step times are unusable (a GPU's clock was
    reduced). `pulled`: an image was pulled at the same time. `beside`: the largest number of other launches that ran on
    the host at the same time. The times of a trial with one of these three are not compared. `parked`: the number of
    other launches that were alive, of which only one made steps at a time."""

    cold: bool = False
    disturbed: str = ""
    pulled: bool = False
    beside: int = 0
    parked: int = 0

    @property
    def others(self) -> int:
        """Return how many other launches were alive, which may have caused a failure."""
        return self.beside + self.parked


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The details of an end that is no `completed`: how the process died, and the stacks of its threads if it hung.

    `shortfall`: why it made fewer steps than its budget without a fault. `remedy`: the advice if no step was seen.
    `at_exit`: it failed after its last step, so its samples are those of a whole launch. `oom_in_setup`: memory ran out
    before the first step, and the end is `setup`.
    """

    signal: int | None = None
    exit_code: int | None = None
    stacks: str = ""
    shortfall: Shortfall = ""
    remedy: Remedy = ""
    at_exit: bool = False
    oom_in_setup: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """The report of a rank of a program: its number and its steps; the medians of a step and of its own part of it,
    without waits for other ranks, in seconds; the memory that it kept; what it told of itself; and the metrics of which
    it returned what is NOT_FINITE."""

    rank: int
    steps: int
    step_s: float | None = None
    own_s: float | None = None
    grown_kib: float | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    not_finite: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenCgroup:
    """The control group of a trial: its version and its memory limit."""

    version: int | None = None
    limit_bytes: int | float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenGpu:
    """A GPU that a trial sees; the fields are those of `Gpu`. What the driver does not report is None."""

    uuid: str | None = None
    name: str | None = None
    index: int | float | None = None
    compute_capability: str | None = None
    driver: str | None = None
    cuda: str | None = None
    memory_mib: int | float | None = None
    power_limit_w: int | float | None = None
    ecc: bool | None = None
    mig: bool | None = None
    parent: str | None = None
    processes: int | float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The report of the agent on a launch (`harness/agent/__init__.py`), besides its samples; None: not reported.

    `told_steps`: it is known what counts as a step, or that nothing does; `step_kind` is whose steps they are and
    `step_shape` which lines. `start_s` lasts from the launch until Python runs, `setup_s` until the first step,
    `first_step_s` is that step; a program or a command that ended by itself took `run_s`, of which `end_s` came after
    the last step. One that was still busy after its last step was ended `busy_s` later. `kept_waiting` is the share of
    the time in which its first thread could run in which others ran. `outlived_by` are the names of the processes that
    it left running. `unread`: why the file of a command's results gave no numbers; "" if it did, or if there is none.
    `environment` has values, `environment_names` the names of the other variables.
    """

    agent: str | None = None
    protocol: int | float | None = None
    python: str | None = None
    implementation: str | None = None
    libc: str | None = None
    packages: Mapping[str, str | None] | None = None
    wheels: Mapping[str, str | None] | None = None
    libraries: tuple[str, ...] | None = None
    probes: tuple[str, ...] | None = None
    environment: Mapping[str, str] | None = None
    environment_names: tuple[str, ...] | None = None
    cpu: str | None = None
    page_kib: int | float | None = None
    huge_pages: str | None = None
    rlimits: Mapping[str, str | None] | None = None
    cgroup: SeenCgroup | None = None
    gpus: tuple[SeenGpu, ...] | None = None
    gpu_links: Mapping[str, str] | None = None
    gpu_problem: str | None = None
    told_steps: bool = False
    step_kind: str | None = None
    step_shape: str | None = None
    stride: float | None = None
    own_s: float | None = None
    start_s: float | None = None
    setup_s: float | None = None
    first_step_s: float | None = None
    run_s: float | None = None
    end_s: float | None = None
    busy_s: float | None = None
    kept_waiting: float | None = None
    outlived_by: tuple[str, ...] | None = None
    unread: str = ""
    ranks: tuple[RankFacts, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the agent reported anything."""
        return self != Facts()


REPLICATE = "-replicate"
"""End of the id of a cell that is an A/A replicate."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trial:
    """One launch of a cell in a fresh container: the unit of all statistics.

    `run` and `round` identify the trials that ran side by side, whose times may be compared. `key` is the hash under
    which a later run may reuse this trial; `fingerprint`, which describes the lane, is part of it. `not_finite`: by
    metric, the number of steps that returned what is NOT_FINITE, and the first of them.
    """

    cell_id: str
    number: int
    key: str
    end: End
    message: str = ""
    failure: Failure = Failure()
    run: str = ""
    round: int = 0
    asked: Asked = Asked()
    last_step: int = 0
    started: str = ""
    duration_s: float = 0.0
    trace: Trace | None = None
    peak_rss_kib: float | None = None  # 0: less than what the agent itself takes
    probe_cost: float | None = None
    output: Printed = Printed()
    not_finite: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    conditions: Conditions = Conditions()
    image: LaunchedImage = LaunchedImage()
    facts: Facts = Facts()
    fingerprint: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_replicate(self) -> bool:
        """Return whether it is a launch of an A/A replicate. It counts as one of its image, but in the comparisons in
        rounds, of which it shows the noise."""
        return self.cell_id.endswith(REPLICATE)

    def thinned(self, rows: int = SHOWN_ROWS) -> Trial:
        """Return the trial with at most `rows` evenly spaced rows in its trace, and as many of its counts, the first
        and the last among them, so that ten thousand cells fit in memory.
        """

        def few(values: Floats) -> Floats:
            last = len(values) - 1
            return values[[place * last // (rows - 1) for place in range(rows)]] if last >= rows else values

        trace = self.trace
        if trace is None or len(trace.step) <= rows:
            return self
        columns, counts = ({name: few(own) for name, own in each.items()} for each in (trace.columns, trace.counts))
        return replace(self, trace=replace(trace, step=few(trace.step), columns=columns, counts=counts))

    def figures(self, name: str) -> Floats | None:
        """Return a column of the trace; None if there is no trace, or no finite number in that column."""
        values = None if self.trace is None else self.trace.column(name)
        return values if values is not None and (abs(values) < math.inf).any() else None

    @property
    def told(self) -> str:
        """Return the trial's message, followed by the advice on the matrix file."""
        return "; ".join(filter(None, (self.message, REMEDIES[self.failure.remedy])))

    @property
    def gist(self) -> str:
        """Return the line of `told` that names the error. What a command that failed in the program printed comes
        before it, because only that says why: `No module named pip; CalledProcessError: Command …`."""
        line = gist(self.told)
        said = last_words(self.output.tail.partition(TRACEBACK)[0]) if "CalledProcessError" in line else ""
        return f"{said}; {line}" if said else line

    def after_end(self, line: str) -> str:
        """Return a line of the message after the end: `crash: step 3: …`. A line on a failure in setup stays unchanged,
        because it already says that no step was made.
        """
        return line if self.end == "setup" else f"{self.end}: {line}"

    @property
    def ran_out_of_memory(self) -> bool:
        """Return whether memory ran out, in the steps or in setup, where weights are allocated."""
        return self.end == "oom" or self.failure.oom_in_setup

    @property
    def measured(self) -> bool:
        """Return whether the trial is evidence about the image."""
        return self.end not in ("infrastructure", "interrupted")

    @property
    def took_turns(self) -> bool:
        """Return whether it made steps in slices; not all launches that are alive together can."""
        cycles = self.figures("slice")
        return cycles is not None and math.isfinite(cycles[-1])

    @property
    def unsteady(self) -> str:
        """Return why a rise of the step time may have an outside cause; "" if nothing disturbed the trial."""
        if self.conditions.beside and not self.conditions.disturbed:
            return "other launches ran at the same time"
        return self.conditions.disturbed or ("an image was pulled at the same time" if self.conditions.pulled else "")

    @property
    def failed_by(self) -> tuple[str, int | None, str]:
        """Return what tells failures apart: how the trial ended, the signal, and the type of the exception."""
        found = _ERROR.search(gist(self.message))
        return self.end, self.failure.signal, "" if found is None else found[0]

    @property
    def ended_well(self) -> bool:
        """Return whether the trial completed its steps, or was stopped before that without a fault."""
        return self.end in ("completed", "stopped")

    @property
    def out_of_time(self) -> bool:
        """Return whether the time limit of the scenario (`timeout`) ended it, between two looks."""
        return self.end == "stopped" and self.failure.shortfall == "timeout"

    def fits_within(self, timeout_s: float) -> bool:
        """Return whether a launch with this time limit would have ended in the same way: one that a limit may have
        ended needs the same one."""
        may_have_ended_it = self.out_of_time or self.end in ("hang", "setup") or self.duration_s > timeout_s
        return not may_have_ended_it or self.asked.timeout_s in (None, timeout_s)

    @property
    def ended_early(self) -> bool:
        """Return whether the trial is a program that ended by itself before its budget of steps."""
        return self.end == "stopped" and self.failure.shortfall == "own_end"

    @property
    def ran_to_its_end(self) -> bool:
        """Return whether a program or a command ended by itself, so that the launch is as long as it can be."""
        return self.ended_well and self.run_s is not None

    @property
    def run_s(self) -> float | None:
        """Return how long a program or a command took, in seconds, if it ended by itself."""
        return self.facts.run_s

    @property
    def is_one_figure(self) -> bool:
        """Return whether only the whole run is judged, because a program or a command ended by itself before its growth
        could be judged: none of its steps was seen, or fewer than LEAST_STEPS."""
        return self.ran_to_its_end and self.last_step < LEAST_STEPS

    @property
    def grows_by_design(self) -> bool:
        """Return whether each step adds to the program's memory: a round of boosting adds a tree to its model."""
        return adds_to_memory(self.facts.step_kind)

    @property
    def stepless(self) -> bool:
        """Return whether the trial ran, but nothing counted as a step: another launch would end in the same way."""
        return self.end == "setup" and self.failure.shortfall == "no_step"

    @property
    def made_its_steps(self) -> bool:
        """Return whether the samples are those of a launch that ran to its end."""
        return self.ended_well or self.failure.at_exit

    @property
    def has_warm_cache(self) -> bool:
        """Return whether it began with a cache that another launch had filled."""
        caches = self.fingerprint.get("caches")
        return isinstance(caches, Mapping) and "warm" in caches.values()

    @property
    def machine(self) -> str:
        """Return the machine that the trial ran on if its host is a pool, else ""."""
        return str(self.fingerprint.get("machine") or "")

    @property
    def cards(self) -> tuple[Mapping[str, Any], ...]:
        """Return the GPUs of the fingerprint; () if the field is malformed, as in a directory that was edited."""
        gpus = self.fingerprint.get("gpus")
        return tuple(card for card in gpus if isinstance(card, Mapping)) if isinstance(gpus, list | tuple) else ()
