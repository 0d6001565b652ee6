"""The records that flow through the harness, all frozen. The words are those of `docs/words.md`.

    matrix.yaml -> Matrix -> Plan (cells) -> Trial (journal) -> CellVerdict -> Finding -> report

Units are in the names: `_kib`, `_mib`, `_s`, `_ms`. Fractions are plain numbers (0.10 is 10 %).
A value that is not known is None. Nothing here imports another part of the harness.
"""

from harness.model.asked import (
    Build,
    Excluded,
    Host,
    Image,
    Install,
    Lane,
    Limits,
    Matrix,
    Pull,
    Scalar,
    Scenario,
    Series,
    Source,
    Steps,
    Trials,
    Variant,
    Where,
)
from harness.model.judged import (
    BAD,
    GOOD,
    UNSURE,
    CellVerdict,
    Change,
    Effect,
    Finding,
    Interval,
    Kind,
    Metric,
    TraceVerdict,
    VerdictName,
)
from harness.model.measured import End, Floats, Look, Trace, Trial
from harness.model.planned import Block, Cell, Plan
from harness.model.result import EXIT_CODES, CellResult, HostState, RunResult, RunVerdict
from harness.model.watching import Watcher

__all__ = [
    "BAD",
    "EXIT_CODES",
    "GOOD",
    "UNSURE",
    "Block",
    "Build",
    "Cell",
    "CellResult",
    "CellVerdict",
    "Change",
    "Effect",
    "End",
    "Excluded",
    "Finding",
    "Floats",
    "Host",
    "HostState",
    "Image",
    "Install",
    "Interval",
    "Kind",
    "Lane",
    "Limits",
    "Look",
    "Matrix",
    "Metric",
    "Plan",
    "Pull",
    "RunResult",
    "RunVerdict",
    "Scalar",
    "Scenario",
    "Series",
    "Source",
    "Steps",
    "Trace",
    "TraceVerdict",
    "Trial",
    "Trials",
    "Variant",
    "VerdictName",
    "Watcher",
    "Where",
]
