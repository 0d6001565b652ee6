"""The files of a run as they must be to be read back: plan.json, summary.json. More fields may be there."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, field_validator

from harness.model import (
    METRIC_PREFIX,
    SIGNALS,
    Interval,
    Kind,
    Limits,
    Metric,
    Scalar,
    Scenario,
    SignalVerdict,
    Steps,
    Trials,
    VerdictName,
)

Names = tuple[str, str, str, str | None, str, str]
"""Series, image, host, GPU, scenario, params as JSON."""


def _known(metric: Metric) -> Metric:
    if metric not in SIGNALS and not metric.startswith(METRIC_PREFIX):
        raise ValueError("no such signal")
    return metric


Known = Annotated[Metric, AfterValidator(_known)]


class MadeFile(BaseModel):
    """How an image is had: exactly one of `pull`, `build` and `install` is there."""

    pull: str | None = None
    build: str | None = None
    args: dict[str, str] = {}
    install: list[str] | None = None
    base: str = ""
    python: str | None = None


class ImageFile(BaseModel):
    version: str
    source: str
    made: MadeFile | None = None
    entrypoint: bool = True
    environment: dict[str, str] = {}


class SeriesFile(BaseModel):
    name: str
    baseline: str | None
    images: list[ImageFile]


class HostFile(BaseModel):
    name: str
    engine: str


class ScenarioFile(BaseModel):
    name: str
    settings: dict[str, Any]
    title: str = ""
    script: str | None = None
    command: list[str] = []
    step_pattern: str | None = None
    files: dict[str, str] = {}


class LaunchFile(BaseModel):
    """Of a scenario's settings, what a launch needs; an older plan has less."""

    steps: Steps
    limits: Limits = Limits()
    judge_exit: bool = False
    timeout_s: float = Scenario.timeout_s
    memory_bytes: int | None = None
    shm_bytes: int = Scenario.shm_bytes
    ulimits: tuple[tuple[str, int, int], ...] = Scenario.ulimits
    environment: dict[str, str] = {}
    network: bool = False
    cap_add: tuple[str, ...] = ()


class CellFile(BaseModel):
    id: str
    image: str
    excluded: str | None


class BlockFile(BaseModel):
    series: str
    host: str
    gpu: str | None
    scenario: str
    params: dict[str, Scalar]
    cells: Annotated[list[CellFile], Field(min_length=1)]
    payload: str | None = None


class PlanFile(BaseModel):
    matrix: str
    file: str = ""
    seed: int
    trials: Trials
    hosts: list[HostFile]
    series: list[SeriesFile]
    scenarios: list[ScenarioFile] = []
    blocks: list[BlockFile]


# ---------------------------------------------------------------- summary.json


class Placed(BaseModel):
    series: str
    host: str
    gpu: str | None
    scenario: str
    params: dict[str, Scalar]


class CellSummary(Placed):
    image: str
    digest: str | None
    verdict: VerdictName
    verdicts: tuple[VerdictName, ...]
    why: str
    trials: int
    failed: int
    signal: int | None
    steps: int
    layer: str | None
    plateau_mib: float | None
    rate_kib_per_step: float | None
    rate_ci: Interval | None
    excluded_kib_per_step: float | None
    step_ms: float | None
    step_ms_ci: Interval | None
    step_drift: float | None
    peak_rss_mib: float | None
    compared_step_ms: float | None = None
    compared_step_ms_ci: Interval | None = None
    compared_peak_mib: float | None = None
    compared_peak_mib_ci: Interval | None = None
    smallest_visible: dict[str, float | None] | None = None
    metrics: dict[str, Any] = {}
    provisional: bool = False
    signals: dict[str, SignalVerdict] = {}

    @field_validator("signals")
    @classmethod
    def _known(cls, signals: dict[str, SignalVerdict]) -> dict[str, SignalVerdict]:
        """Those that this version of the harness has."""
        return {name: one for name, one in signals.items() if name in SIGNALS or name.startswith(METRIC_PREFIX)}

    @property
    def names(self) -> Names:
        return self.series, self.image, self.host, self.gpu, self.scenario, json.dumps(self.params)


class EffectFile(BaseModel):
    value: float
    unit: str
    ci: Interval | None


class FindingFile(Placed):
    metric: Known
    kind: Kind
    last_good: str | None = None
    first_bad: str = ""
    last_bad: str | None = None
    first_good: str = ""
    oldest_bad: str = ""
    last_milder: str | None = None
    first_worse: str = ""
    drift_from: str | None = None
    drift_to: str = ""
    untestable: tuple[str, ...]
    effect: EffectFile | None
    p: float | None
    confirmed: bool
    consequence_of: str | None = None
    verdict: str = ""


class AttributionFile(BaseModel):
    series: str
    scenario: str
    metric: Known
    cause: str
    findings: list[int] | None = None
    rule: str | None = None
    sentence: str = ""


class SummaryFile(BaseModel):
    cells: list[CellSummary]
    findings: list[FindingFile]
    attribution: list[AttributionFile] = []
