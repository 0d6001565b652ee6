"""Defines every signal that the harness judges or reports, with one record each.

The agent's job, the judge, the matrix file, all reports and the documentation use this table. The judge distinguishes
kinds, not single signals:

    outcome      how a launch ended, including its exit
    growth       an amount that rises with every step of a launch
    level        one figure per launch, compared between versions in rounds
    value        a number that the scenario returns
    observation  reported with a finding, but not judged

CONTRIBUTING.md shows how to add a signal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from harness.agent import result_names

SignalKind = Literal["outcome", "growth", "level", "value", "observation"]
Group = Literal["outcome", "memory", "resources", "step time", "start-up", "values"]
GROUPS: tuple[Group, ...] = ("outcome", "memory", "resources", "step time", "start-up", "values")
"""The segments of each cell's strip in reports, in order."""
LimitUnit = Literal["share", "size a step", "count a step"]


@dataclass(frozen=True, kw_only=True)
class Signal:
    """One thing that can be worse in another version.

    `name` is the key of its limit in a matrix file and the `metric` of its findings. `unit` is the unit of its figure.
    `limit` is the default: a share for levels, an amount per step for growths; None: it has none, or it is not judged
    unless the matrix file sets one. `least` is the smallest absolute change that counts, in `unit`, whatever its share,
    and `least_of_run` that of the bytes of a whole run without steps: one line may double them, and the packages that
    it imports are among them.
    `falls`: a lower value is worse. `noun` names the regression (`slower steps`), `verb` is its predicate, with a place
    for its size (`takes {longer} per step`), `title` names the figure (`step time`). `explains` are the signals
    that a change of this one moves as well: a finding of theirs at the same version is a consequence of this one's.
    `weight` is its share of the false-alarm probability of all levels of a scenario together. `rounds` is the smallest
    number of rounds in which a change of this level is named: other load on the machine disturbs some figures so much
    that fewer rounds accuse equal versions. `short` is its name in narrow columns, if its title is long. `spent`: it is
    a part of the run time, once in a launch or at each step. `of_server`: only servers have it. `stands_in_for`: the
    level that it measures in another way; it names a version only where that level is undecided, leaves nothing open
    itself, and has the same limit unless it is given one of its own.
    """

    name: str
    kind: SignalKind
    group: Group
    title: str
    noun: str
    verb: str
    unit: str
    help: str
    limit: float | None = None
    limit_unit: LimitUnit = "share"
    least: float = 0.0
    least_of_run: float = 0.0
    falls: bool = False
    explains: tuple[str, ...] = ()
    weight: float = 1.0
    rounds: int = 2
    short: str = ""
    spent: Literal["", "once", "each step"] = ""
    of_server: bool = False
    stands_in_for: str = ""


_TABLE = (
    Signal(
        name="outcome", kind="outcome", group="outcome", title="outcome", noun="failure", verb="fails", unit="failures",
        help="how launches end: crash, out of memory, hang, and a process that fails after its last step",
    ),
    # ------------------------------------------------------------ growths: an amount added by each step
    Signal(
        name="memory", kind="growth", group="memory", title="memory", noun="memory leak", verb="leaks {amount}",
        unit="KiB/step", limit=0.5, limit_unit="size a step",
        explains=(
            "peak_memory", "step_time", "stalls", "late_step_time", "tail", "cpu_time", "throughput",
            "gpu_peak", "pool_peak", "shm", "worker_memory", "run_time",
        ),
        help="resident memory without the pages of mapped files, the C heap and the memory of GPUs",
    ),
    Signal(
        name="worker_memory", kind="growth", group="memory", title="memory of the workers", short="workers",
        noun="memory leak in the workers", verb="leaks {amount} in its workers", unit="KiB/step", limit=0.5,
        limit_unit="size a step",
        explains=(
            "peak_memory", "step_time", "stalls", "late_step_time", "tail", "cpu_time", "throughput", "run_time",
        ),
        help="memory of the processes that the scenario started, without the pages that they share",
    ),
    Signal(
        name="open_files", kind="growth", group="resources", title="open files", noun="open files that pile up",
        verb="leaves files open", unit="files/step", limit=0.01, limit_unit="count a step",
        explains=("memory", "worker_memory", "step_time", "stalls", "cpu_time"),
        help="open files, sockets and pipes of all processes of the trial",
    ),
    Signal(
        name="threads", kind="growth", group="resources", title="threads", noun="threads that pile up",
        verb="leaves threads running", unit="threads/step", limit=0.01, limit_unit="count a step",
        explains=("memory", "worker_memory", "peak_memory", "step_time", "stalls", "cpu_time"),
        help="threads of all processes of the trial",
    ),
    Signal(
        name="processes", kind="growth", group="resources", title="processes", noun="processes that pile up",
        verb="leaves processes running", unit="processes/step", limit=0.01, limit_unit="count a step",
        explains=("memory", "worker_memory", "open_files", "threads", "step_time", "stalls", "cpu_time"),
        help="live processes that the scenario started",
    ),
    Signal(
        name="zombies", kind="growth", group="resources", title="zombies", noun="zombies that pile up",
        verb="leaves zombies", unit="zombies/step", limit=0.01, limit_unit="count a step",
        explains=("step_time", "stalls", "cpu_time"),
        help="dead processes that the scenario started and did not wait for",
    ),
    Signal(
        name="shm", kind="growth", group="resources", title="shared memory", short="/dev/shm",
        noun="shared memory that fills",
        verb="fills /dev/shm", unit="KiB/step", limit=0.5, limit_unit="size a step",
        explains=("memory", "peak_memory", "step_time", "stalls"),
        help="bytes in /dev/shm",
    ),
    Signal(
        name="disk", kind="growth", group="resources", title="files on disk", short="disk",
        noun="files on disk that pile up",
        verb="fills the disk", unit="KiB/step", limit=0.5, limit_unit="size a step",
        explains=("step_time", "stalls", "cpu_time", "bytes_written"),
        help="bytes in the places that the trial may write to",
    ),
    # ------------------------------------------------------------ levels: one figure per launch
    Signal(
        name="step_time", kind="level", group="step time", title="step time", spent="each step", noun="slower steps",
        verb="takes {longer} per step", unit="s", limit=0.10, least=0.5e-6, weight=5.0,
        explains=(
            "throughput", "quick_steps", "tail", "stalls", "warm_up", "cpu_time", "late_step_time", "first_step",
            "run_time",
        ),
        help="the median duration of a step",
    ),
    Signal(
        name="quick_steps", kind="level", group="step time", title="quick steps", noun="slower quick steps",
        verb="takes {longer} for its quickest steps", unit="s", limit=0.10, least=0.5e-6, stands_in_for="step_time",
        explains=("throughput", "tail", "stalls", "warm_up", "cpu_time", "run_time"),
        help="the 5th percentile of the step time, which other load changes least, where the step time is undecided",
    ),
    Signal(
        name="late_step_time", kind="level", group="step time", title="late step time", short="late steps",
        noun="steps that are slower late in a launch", verb="takes {longer} per step late in a launch", unit="ratio",
        limit=0.25, explains=("tail", "stalls", "throughput", "cpu_time", "run_time"),
        help="the step time in the last eighth of a whole launch, compared with its second quarter",
    ),
    Signal(
        name="tail", kind="level", group="step time", title="tail of the step time", short="tail",
        noun="a longer tail of slow steps",
        verb="has slow steps that take {longer}", unit="s", limit=1.0, least=100e-6, weight=2.0, rounds=5,
        explains=("stalls", "warm_up", "throughput", "cpu_time", "run_time"),
        help="the 99th percentile of the step time, after the warm-up",
    ),
    Signal(
        name="stalls", kind="level", group="step time", title="step time with stalls", short="stalls",
        spent="each step", noun="longer stalls",
        verb="takes {longer} per step with its stalls", unit="s", limit=0.25, least=20e-6, weight=0.5, rounds=5,
        explains=("warm_up", "throughput", "cpu_time", "run_time"),
        help="the usual duration of a step, plus the mean time lost in steps that take more than twice as long",
    ),
    Signal(
        name="rank_spread", kind="level", group="step time", title="spread between ranks", short="ranks",
        noun="a rank that is slower than the others", verb="has a rank that takes {longer} than the others",
        unit="ratio", limit=0.10, weight=0.5, explains=("step_time", "tail", "stalls", "throughput", "run_time"),
        help="the step time of the slowest rank without waits for others, compared with that of the others",
    ),
    Signal(
        name="cpu_time", kind="level", group="step time", title="CPU time", noun="more CPU time",
        verb="takes {more} CPU time", unit="s/step", limit=0.25, explains=("throughput",),
        help="processor time per step of all processes of the trial",
    ),
    Signal(
        name="run_time", kind="level", group="step time", title="run time", noun="a longer run",
        verb="takes {longer} to run", unit="s", limit=0.10, least=0.25, weight=0.5,
        explains=("cpu_time", "throughput", "first_step", "warm_up", "end_time"),
        help="the time from the start to the end of a program or a command that ends by itself",
    ),
    Signal(
        name="throughput", kind="level", group="step time", title="throughput", noun="lower throughput",
        verb="does {less} in the same time", unit="items/s", limit=0.10, falls=True,
        help="`items` per second, if the scenario returns them",
    ),
    Signal(
        name="first_token", kind="level", group="step time", title="time to the first token", short="first token",
        noun="a later first token", verb="takes {longer} to the first token", unit="s", limit=0.10, least=20e-6,
        of_server=True, explains=("step_time", "tail", "stalls", "throughput"),
        help="of a streamed reply: the median time from the request to the first part of its body",
    ),
    Signal(
        name="token_time", kind="level", group="step time", title="time between tokens", short="tokens",
        noun="slower tokens", verb="takes {longer} from token to token", unit="s", limit=0.10, least=20e-6,
        weight=0.5, of_server=True, explains=("step_time", "tail", "stalls", "throughput"),
        help="of a streamed reply: the median of its mean time between two parts of its body",
    ),
    Signal(
        name="errors", kind="level", group="outcome", title="answered requests", short="answered",
        noun="failed requests", verb="answers {fewer} of its requests", unit="ratio", limit=0.005, falls=True,
        weight=0.5, of_server=True,
        help="of a server: the share of the requests that succeed; a drop by more than this is bad",
    ),
    Signal(
        name="ready_time", kind="level", group="start-up", title="time to be ready", short="ready", spent="once",
        noun="a server that is ready later", verb="takes {longer} to be ready", unit="s", limit=0.50, least=0.5,
        weight=0.5, of_server=True,
        help="the time from the start of a server until it is ready",
    ),
    Signal(
        name="start_time", kind="level", group="start-up", title="start time", noun="a slower start",
        verb="takes {longer} to start", unit="s", limit=0.50, least=0.5, weight=0.5,
        help="the time from the launch until Python runs in the container or the environment",
    ),
    Signal(
        name="setup_time", kind="level", group="start-up", title="setup time", spent="once", noun="a slower setup",
        verb="takes {longer} to set up", unit="s", limit=0.50, least=0.5, explains=("first_step", "run_time"),
        help="the time to import the script and run its `setup`",
    ),
    Signal(
        name="first_step", kind="level", group="start-up", title="first step", spent="once", noun="a slower first step",
        verb="takes {longer} for its first step", unit="s", limit=0.50, least=0.5, explains=("run_time",),
        help="the duration of the first step, in which frameworks compile",
    ),
    Signal(
        name="warm_up", kind="level", group="start-up", title="warm-up", spent="once", noun="a longer warm-up",
        verb="takes {longer} to warm up", unit="s", limit=0.50, least=0.5, weight=0.5, explains=("run_time",),
        help="the time lost in the steps of the first quarter that take more than twice as long as later ones",
    ),
    Signal(
        name="end_time", kind="level", group="start-up", title="time to end", short="end", spent="once",
        noun="a slower end",
        verb="takes {longer} to end", unit="s", limit=0.50, least=0.5, weight=0.5, explains=("run_time",),
        help="the time from the last step to the end of the process",
    ),
    Signal(
        name="peak_memory", kind="level", group="memory", title="peak memory", noun="higher peak memory",
        verb="needs {more} memory at its peak", unit="KiB", limit=0.10, least=1024.0, weight=3.0,
        help="the largest resident memory of a single process at any time; of a command, also of all its processes"
        " together, as sampled",
    ),
    Signal(
        name="gpu_peak", kind="level", group="memory", title="peak GPU memory", short="GPU peak",
        noun="higher peak GPU memory",
        verb="needs {more} GPU memory at its peak", unit="KiB", limit=0.10, weight=0.5, least=1024.0,
        explains=("pool_peak",),
        help="the largest memory in use on the GPUs at any time",
    ),
    Signal(
        name="pool_peak", kind="level", group="memory", title="peak of the GPU pool", short="pool peak",
        noun="a higher peak of the GPU pool", verb="needs {more} of the GPU pool at its peak", unit="KiB", limit=0.10,
        weight=0.5, least=1024.0,
        help="the largest memory that the framework's own GPU allocator handed out at any time",
    ),
    Signal(
        name="output", kind="level", group="resources", title="output", noun="more output", verb="prints {more}",
        unit="B/step", limit=1.0, weight=0.5, least=100.0, least_of_run=16384.0, explains=("bytes_written",),
        help="B/step on stdout and stderr",
    ),
    Signal(
        name="bytes_read", kind="level", group="resources", title="bytes read", short="read", noun="more bytes read",
        verb="reads {more}", unit="B/step", limit=1.0, weight=0.25, least=16384.0, least_of_run=float(8 << 20),
        explains=("step_time", "tail", "stalls", "warm_up", "throughput", "cpu_time", "run_time"),
        help="B/step that all processes read, also from pipes and sockets; not from mapped files",
    ),
    Signal(
        name="bytes_written", kind="level", group="resources", title="bytes written", short="written",
        noun="more bytes written", verb="writes {more}", unit="B/step", limit=1.0, weight=0.25, least=16384.0,
        least_of_run=float(1 << 20),
        explains=("bytes_read", "step_time", "tail", "stalls", "warm_up", "throughput", "cpu_time", "run_time"),
        help="B/step that all processes write, also to pipes and sockets; not to mapped files",
    ),
    Signal(
        name="held", kind="level", group="resources", title="held at the end", short="held", noun="more that is held",
        verb="holds {more} at its end (files, threads, processes)", unit="", limit=1.0, weight=0.25, least=20.0,
        explains=("peak_memory", "run_time", "end_time"),
        help="open files, threads, processes and zombies at the end of a program that has no steps, few steps, or "
        "steps that cannot be compared",
    ),
    Signal(
        name="left", kind="level", group="resources", title="left on the disk", short="left",
        noun="more that is left on the disk", verb="leaves {more} on the disk", unit="KiB", limit=1.0, weight=0.25,
        least=1024.0, explains=("bytes_written", "run_time", "end_time"),
        help="KiB that a program has added to its folder, temporary folders, the home and /dev/shm at its end, if "
        "`held` is judged",
    ),
    Signal(
        name="image_size", kind="level", group="start-up", title="image size", noun="a larger image",
        verb="takes {more} disk space", unit="B", limit=0.50, weight=0.5, least=float(50 << 20),
        help="the size of the image, or of the environment, on disk",
    ),
    # ------------------------------------------------------------ reported, not judged
    Signal(
        name="log", kind="observation", group="values", title="log", noun="new lines in the log",
        verb="prints new lines", unit="lines", help="lines of output that no earlier version printed",
    ),
    Signal(
        name="error", kind="observation", group="values", title="new error", noun="a new error in the log",
        verb="prints a new error", unit="lines", help="new lines that tell of an error, NaN, or a fallback",
    ),
    Signal(
        name="other_result", kind="observation", group="values", title="other result", noun="another result",
        verb="gives another result", unit="results",
        help="a number that is the same in all launches of a version, and another one in all launches of the next",
    ),
    Signal(
        name="fewer_steps", kind="observation", group="values", title="fewer steps", noun="fewer steps",
        verb="makes fewer steps", unit="steps", help="a program that ends by itself after fewer steps than before",
    ),
    Signal(
        name="other_lines", kind="observation", group="values", title="other lines", noun="other lines of output",
        verb="prints other lines", unit="lines",
        help="lines that are the same in all launches of a version, with other numbers or texts in all of the next",
    ),
    Signal(
        name="other_end", kind="observation", group="values", title="other end", noun="another end",
        verb="ends in another way", unit="launches",
        help="a program that ends well, but without the last line or files of older versions, or by os._exit",
    ),
    Signal(
        name="deprecated", kind="observation", group="values", title="deprecated", noun="a new notice of removal",
        verb="announces a removal", unit="lines", help="new lines that say that something will be removed",
    ),
)  # fmt: skip

SIGNALS: Mapping[str, Signal] = {signal.name: signal for signal in _TABLE}
NOTABLE = ("error", "other_result", "other_end", "other_lines", "fewer_steps", "deprecated")
"""The observations that nobody should miss: a version with one is never simply good."""
UNSETTLING = NOTABLE[:4]
"""The observations that leave a run without findings undecided."""
GROWTHS = tuple(signal.name for signal in _TABLE if signal.kind == "growth" and signal.name != "memory")
"""The growths that the agent counts (`Trace.counts`); memory is sampled and judged separately."""
LEVELS = tuple(signal.name for signal in _TABLE if signal.kind == "level")
STAND_INS = {signal.name: signal.stands_in_for for signal in _TABLE if signal.stands_in_for}
"""The levels that stand in for another one, by name, with that one."""
STEP_TIMES = ("step_time", *(name for name, level in STAND_INS.items() if level == "step_time"))
"""The levels that measure how long a step takes."""
LIMITED = tuple(signal.name for signal in _TABLE if signal.limit is not None)
TIMES = tuple(
    signal.name
    for signal in _TABLE
    if signal.group == "step time" or (signal.group == "start-up" and signal.unit == "s")
)
"""The levels that load on the machine changes. `step_time: none` turns off those without a limit in the file."""
METRIC_PREFIX = "metrics."


def is_told_alone(metric: str) -> bool:
    """Return whether launches of one version alone tell it; a level is compared in rounds of all versions."""
    return signal_of(metric).kind in ("outcome", "growth")


def worse_if(metric: str) -> Literal["rise", "drop", "change"] | None:
    """Return which change of a scenario's number is worse, according to its name: a `loss` that rises, an `accuracy`
    that drops, and any other that changes; None for counters, times, sizes and settings. It is the rule by which the
    agent reads printed numbers.
    """
    return cast('Literal["rise", "drop", "change"] | None', result_names.worse_if(metric) or None)


def worse_measure(metric: str) -> Literal["rise", "drop"] | None:
    """Return which change of a time or a rate that a program prints is worse; None for any other number."""
    return cast('Literal["rise", "drop"] | None', result_names.worse_measure(metric) or None)


Per = Literal["step", "request", "line", "run"]
"""The units by which the amounts of a launch are counted: steps, requests to a server, lines that the program prints,
or, of a program or a command without steps that ends by itself, the whole run."""


def least_per(signal: Signal, per: Per) -> float:
    """Return the smallest absolute change of a signal that counts, for what its amounts are counted by."""
    return signal.least_of_run if per == "run" and signal.least_of_run else signal.least


def unit_per(signal: Signal, per: Per) -> str:
    """Return the unit of a signal for what its amounts are counted by: `KiB/line` for `KiB/step`. The levels of a whole
    run are counted by nothing, and its growths by seconds.
    """
    unit = signal.unit
    if not unit.endswith("/step") or per == "step":
        return unit
    if per == "run" and signal.kind == "level":
        return unit.removesuffix("/step")
    return f"{unit.removesuffix('step')}{'s' if per == 'run' else per}"


def counted(per: Per) -> str:
    """Return what one of the amounts of a launch belongs to, in the singular: in a whole run, a second."""
    return "second" if per == "run" else per


def in_words(text: str, name: str, per: Per) -> str:
    """Return the words of a signal for what the amounts are counted by: each step of a server is a request to it. The
    words of `metrics.NAME` have a name that the user gave, which stays."""
    return text.replace("step", "request") if per == "request" and not name.startswith(METRIC_PREFIX) else text


_SINGULAR: Mapping[str, str] = {"files": "file", "threads": "thread", "processes": "process", "zombies": "zombie"}
"""The units that have another form after `1`."""


def unit_after(number: str, unit: str) -> str:
    """Return the unit in the form that follows this number: `file/step` after `1`, else `files/step`."""
    noun, slash, per = unit.partition("/")
    return f"{_SINGULAR.get(noun, noun) if number == '1' else noun}{slash}{per}"


def signal_of(name: str) -> Signal:
    """Return the signal of a name; for `metrics.NAME`, a new one made from the name of the scenario's metric."""
    if not name.startswith(METRIC_PREFIX):
        return SIGNALS[name]
    metric = name.removeprefix(METRIC_PREFIX)
    return Signal(
        name=name, kind="value", group="values", title=metric, noun=f"another {metric}",
        verb=f"returns another `{metric}`", unit="", help="a number that the scenario returns or prints",
        falls="drop" in (worse_if(metric), worse_measure(metric)),
    )  # fmt: skip


LARGEST_DROP = 0.999
"""Largest drop that is converted to a log: a drop to zero has no finite log."""


def log_of(name: str, share: float) -> float:
    """Convert a relative change to the log that is compared; for a signal that is worse if it falls, it is a drop."""
    return log_of_change(share, falls=SIGNALS[name].falls)


def log_of_change(share: float, *, falls: bool) -> float:
    """Convert a relative change to a positive log: a drop by `share` if it `falls`, else a rise."""
    return -math.log1p(-min(share, LARGEST_DROP)) if falls else math.log1p(share)


MOST_LOG = 700.0
"""Largest absolute log that is converted: in a float, a ratio above e^709 overflows, and one below e^-745 is zero."""


def ratio_of(log: float) -> float:
    """Return e^log, which is positive and finite."""
    return math.exp(max(-MOST_LOG, min(log, MOST_LOG)))


def share_of(log: float) -> float:
    """Return e^log - 1, which is above -1 and finite."""
    return math.expm1(max(-MOST_LOG, min(log, MOST_LOG)))


MOST_VISIBLE = 999.0
"""Largest change that counts as ruled out, as a fraction. Two launches that hardly agree give 10²² and more."""


def known_effect(name: str, visible: float | None) -> float | None:
    """Return the change of a signal that is ruled out, as files have it: None if it is one by a factor of more than
    1,000. That of a growth is an amount per step, which has no such bound.
    """
    is_unknown = visible is not None and signal_of(name).kind != "growth" and visible > MOST_VISIBLE
    return None if is_unknown else visible
