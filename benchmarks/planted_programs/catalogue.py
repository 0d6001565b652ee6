"""The planted programs: for each, the signals that are right findings, and the sizes that equal 1, 1.5 and 3 limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.model.signals import SIGNALS, STAND_INS

SIZES = (1.0, 1.5, 3.0)
"""Sizes of the planted changes, in multiples of the limit."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A program with a fault. `signal`: the signal under which it is listed; `rightly`: the signals of a right finding.

    `limit`: the change that size 1 stands for; by default the signal's own limit. `fixed`: the fault has only one size.
    `steps` and `more` go into the scenario. `told`: a text that has to be reported, but not judged. `launches`: the
    most launches of a version, if the fault is not in each of them.
    """

    name: str
    family: str
    signal: str
    also: tuple[str, ...] = ()
    limit: float = 0.0
    fixed: bool = False
    steps: tuple[int, int] = (500, 4000)
    more: Mapping[str, Any] = field(default_factory=dict)
    told: str = ""
    launches: int | None = None

    @property
    def rightly(self) -> tuple[str, ...]:
        return (self.signal, *self.also, *(name for name, other in STAND_INS.items() if other == self.signal))

    @property
    def timed(self) -> bool:
        """Whether other load on the machine disturbs the program."""
        return self.family in ("levels", "runs", "groups", "healthy", "gpus")

    @property
    def most_trials(self) -> int:
        """The most launches: a few more rounds if figures are compared; the default of 8 would take twice the time."""
        return self.launches or (5 if self.timed else 4)

    def sizes(self) -> tuple[float | None, ...]:
        return (None,) if self.fixed else SIZES

    def amount(self, size: float | None) -> float:
        """Return the script's `amount`: a share, seconds, a count or KiB a step."""
        signal = SIGNALS.get(self.signal)
        own = signal.limit if signal is not None else None
        return (size or 1.0) * (self.limit or own or 1.0)


def _outcomes(*names: str) -> list[Planted]:
    return [Planted(name=name, family="outcomes", signal="outcome", fixed=True) for name in names]


def _growths(signal: str, *names: str, also: tuple[str, ...] = ()) -> list[Planted]:
    return [Planted(name=name, family="growths", signal=signal, also=also) for name in names]


def _levels(signal: str, *names: str, **settings: Any) -> list[Planted]:
    settings = {"steps": (500, 1000), **settings}
    return [Planted(name=name, family="levels", signal=signal, **settings) for name in names]


def _values(signal: str, *names: str, **settings: Any) -> list[Planted]:
    settings = {"steps": (500, 1000), **settings}
    return [Planted(name=name, family="values", signal=signal, **settings) for name in names]


def _groups(signal: str, name: str, **settings: Any) -> Planted:
    return Planted(name=name, family="groups", signal=signal, **{"steps": (500, 1000), **settings})


SECONDS = 0.5  # the base of setup and first step is so short that the absolute limit counts
PLANTED: tuple[Planted, ...] = (
    *_outcomes("segv_in_step", "raises_in_step", "segv_at_exit", "abort_at_exit", "exit_3_at_exit", "killed_at_exit"),
    *_outcomes("teardown_raises", "thread_at_exit", "hang_at_exit"),
    *_growths("memory", "leak_python", "leak_native"),
    *_growths("worker_memory", "workers_forked", "workers_spawned"),
    *_growths("open_files", "files", "sockets", "pipes"),
    *_growths("threads", "threads", "timers"),
    *_growths("processes", "processes_programs", "processes_forked"),
    *_growths("zombies", "zombies_forked", "zombies_programs"),
    *_growths("shm", "shm_segments", "shm_one_file"),
    *_growths("shm", "shm_without_name", also=("memory", "open_files")),  # a mapping holds its file open
    *_growths("disk", "disk_mkstemp", "disk_cwd", "disk_log", "disk_tmp"),
    *_levels("step_time", "busy_10us", "busy_100us", "sleeping_2ms"),
    *_levels("step_time", "busy_5ms", steps=(250, 500)),
    *_levels("step_time", "busy_40ms", steps=(64, 128)),
    *_levels("step_time", "two_modes", limit=0.09, launches=20),
    *_levels("late_step_time", "late", "late_gradual", steps=(500, 4000)),
    *_levels("tail", "tail_new", "tail_longer"),
    *_levels("tail", "tail_50_times", fixed=True),
    *_levels("stalls", "stalls"),
    *_levels("cpu_time", "cpu_spinning", "cpu_thread", "cpu_process", steps=(250, 500)),
    *_levels("throughput", "fewer_items"),
    *_levels("start_time", "start_sleeps", limit=SECONDS, also=("setup_time",)),
    *_levels("setup_time", "setup_sleeps", "setup_works", "import_sleeps", limit=SECONDS),
    *_levels("first_step", "first_step_works", "first_step_sleeps", limit=SECONDS),
    *_levels("warm_up", "tunes", limit=SECONDS),
    *_levels("end_time", "end_sleeps", limit=SECONDS),
    *_levels("peak_memory", "peak_temporary", "peak_kept"),
    *_levels("output", "output_stderr", "output_stdout"),
    *_levels("bytes_read", "file_read"),
    *_levels("bytes_written", "file_written"),
    *_values("metrics.loss", "loss_nan", "loss_infinite", "loss_nan_once", fixed=True),
    *_values("metrics.loss", "loss_higher", limit=0.10, more={"metrics": {"loss": {"change": "10%"}}}),
    *_values("metrics.checksum", "checksum", fixed=True, more={"metrics": {"checksum": "equal"}}),
    *_values(
        "metrics.items", "items_drop", limit=0.05, also=("throughput",), more={"metrics": {"items": {"drop": "5%"}}}
    ),
    *_values("log", "new_line", fixed=True, told="Could not load libplanted.so"),
    *_values("error", "new_error", fixed=True, told="planted worker"),
    *_values("deprecated", "new_deprecation", fixed=True, told="planted.old is deprecated"),
    Planted(name="run_sleeps", family="runs", signal="run_time"),
    Planted(name="bar_sleeps", family="runs", signal="step_time", also=("run_time",)),
    Planted(name="fewer_epochs", family="runs", signal="fewer_steps", fixed=True, told="it ends after"),
    Planted(name="stops_half_way", family="runs", signal="other_end", fixed=True, told="its last line"),
    Planted(name="files_held", family="runs", signal="held", fixed=True),
    Planted(name="files_left", family="runs", signal="left", fixed=True),
    Planted(name="order_printed", family="runs", signal="other_lines", fixed=True, told="row 0 of the best"),
    Planted(name="checksum_printed", family="runs", signal="metrics.checksum", fixed=True),
    *(
        Planted(name=name, family="runs", signal="memory", limit=1024.0)
        for name in ("run_leaks", "run_leaks_late", "run_child_leaks")
    ),
    Planted(name="run_loads", family="runs", signal="peak_memory", fixed=True),
    _groups("memory", "rank_leaks", steps=(500, 2000)),
    _groups("rank_spread", "rank_slow"),
    _groups("step_time", "ranks_slower"),
    _groups("outcome", "rank_dies", fixed=True),
    _groups("outcome", "rank_never_arrives", fixed=True, more={"timeout": "20s"}),
    _groups("outcome", "rank_never_ends", fixed=True, more={"timeout": "20s"}),
    _groups("metrics.loss", "rank_nan", fixed=True),
)  # fmt: skip

_HEALTHY = (
    "plain", "file_cache_64", "file_cache_400", "thread_pool", "worker_pool", "temporary_files", "rotating_log",
    "late_reaping", "shm_ring", "socket_churn", "cache_that_fills", "bursty_allocator", "uneven_peak",
    "collected_cycles", "jittery_setup", "cold_start", "workers_replaced", "workers_cache", "long_tails", "rare_pauses",
    "slow_warm_up", "bimodal_steps", "two_kinds_of_launches", "bursts_beside", "quicker_versions", "slow_to_exit",
    "output_at_start", "noisy_lines", "noisy_loss", "seeded_loss", "last_bit", "nan_everywhere", "uneven_items",
    "order_of_data",
)  # fmt: skip
_HEALTHY_GROUPS = (
    "ranks_plain", "ranks_unequal", "ranks_take_turns", "ranks_jitter", "rank_pauses", "ranks_warm_up", "ranks_work",
    "rank_evaluates", "rank_checkpoints", "rank_fills_cache", "rank_bursts", "ranks_send", "ranks_have_workers",
    "rank_prints_much", "ranks_noisy_loss", "ranks_apart", "ranks_end_early", "ranks_start_late", "rank_ends_long",
    "rank_starts_again",
)  # fmt: skip
_HEALTHY_RUNS = ("cycles", "keeps", "warms_up", "maps_files", "fills_pool")
HEALTHY = (
    *(Planted(name=name, family="healthy", signal="none", fixed=True) for name in _HEALTHY),
    Planted(name="keeps_results", family="runs", signal="none", fixed=True),
    Planted(name="other_lines", family="runs", signal="none", fixed=True),
    *(Planted(name=f"run_{name}", family="runs", signal="none", fixed=True) for name in _HEALTHY_RUNS),
    *(_groups("none", name, fixed=True) for name in _HEALTHY_GROUPS),
)
"""Healthy programs that look guilty."""

QUIET = ("plain", "bursty_allocator", "temporary_files", "seeded_loss")
"""The variants of a quiet sweep."""


def _on_gpu(signal: str, name: str, **settings: Any) -> Planted:
    return Planted(name=name, family="gpus", signal=signal, **{"steps": (500, 2000), **settings})


ON_GPU = (
    _on_gpu("memory", "gpu_leak_pool", steps=(500, 8000)),
    _on_gpu("memory", "gpu_leak_driver", steps=(500, 8000), limit=32.0, more={"limits": {"leak": "32KiB"}}),
    _on_gpu("pool_peak", "gpu_peak_pool", also=("gpu_peak",)),
    _on_gpu("gpu_peak", "gpu_peak_driver"),
    _on_gpu("step_time", "gpu_products"),
    _on_gpu("none", "gpu_training", fixed=True),
    _on_gpu("none", "gpu_uneven_batches", fixed=True),
)
"""Programs that need a GPU and PyTorch; the last two are healthy."""
