"""Defines the records that pass through the harness, all frozen. Their terms are defined in `docs/words.md`.

    matrix.yaml -> Matrix -> Plan (cells) -> Trial (journal) -> CellVerdict -> Finding -> report

Units are in the names: `_kib`, `_mib`, `_s`, `_ms`. Fractions are plain numbers (0.10 is 10 %).
An unknown value is None. This package imports no other part of the harness.
"""

from harness.model.answers import Column, Comparison, Measured, Pair, SeriesChange, SeriesVerdict, Standing
from harness.model.attributed import Attribution, Cause, Doubt, ParamCondition, Rule
from harness.model.episodes import Episode
from harness.model.judged import (
    BAD,
    FAILURES,
    GOOD,
    UNSURE,
    CellVerdict,
    Change,
    Effect,
    Finding,
    FindingKind,
    Interval,
    Metric,
    Noise,
    Observation,
    Observed,
    SignalState,
    SignalVerdict,
    TraceVerdict,
    VerdictName,
)
from harness.model.matrix import (
    ENGINES,
    LIBRARIES,
    MOST_TRIALS,
    Build,
    ContainerKind,
    EngineKind,
    Graft,
    Host,
    Image,
    Install,
    Lane,
    Matrix,
    NodeRequest,
    Pull,
    Series,
    Source,
    Stop,
    Trials,
    engine_kind,
    machine_name,
)
from harness.model.measured import (
    LARGEST,
    Asked,
    Conditions,
    End,
    Failure,
    Floats,
    LaunchedImage,
    Look,
    Printed,
    Remedy,
    Shortfall,
    Trace,
    Trial,
    gist,
)
from harness.model.narrowed import (
    BOTH_SIDES,
    Component,
    ComponentGroup,
    Culprit,
    Hybrid,
    HybridOutcome,
    HybridResult,
    Narrowed,
    ProofCell,
    Side,
)
from harness.model.planned import (
    Cell,
    Estimate,
    Explanation,
    HostCost,
    Plan,
    PredictedEffect,
    SearchMode,
    Skip,
    VersionRow,
)
from harness.model.probed import Leak, LineRow, LineTable, MemoryHolder, OomReport, OpDrift, Probed, Setting, SizeTry
from harness.model.result import EXIT_CODES, CellResult, HostState, RunResult, RunVerdict
from harness.model.scenario import (
    LAUNCHER_MODULES,
    LAUNCHERS,
    Depth,
    Limits,
    MetricLimit,
    MetricRule,
    Probe,
    ProbeName,
    Program,
    Scalar,
    Scenario,
    Steps,
    StepsAre,
    Variant,
    Where,
    grouped,
    starts_python,
    written,
)
from harness.model.signals import (
    GROUPS,
    GROWTHS,
    LEVELS,
    LIMITED,
    METRIC_PREFIX,
    NOTABLE,
    SIGNALS,
    TIMES,
    Group,
    Per,
    Signal,
    counted,
    log_of,
    log_of_change,
    signal_of,
    unit_after,
    unit_per,
    worse_if,
)
from harness.model.watching import ProgressListener
