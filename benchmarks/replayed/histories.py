"""Measured figures of each history, in compact form, and the launches that are generated from them.

The figures of a history come from real launches on the process engine (`benchmarks.replayed.record` reads them): how
long a launch takes besides its steps, the step time and its spread within a launch, memory at some steps, and how the
launch ended. Each launch is generated from them with its own random stream, which depends only on the version and the
number of the launch: in any order, launch 2 of a version is the same. The spread between launches cannot be measured
from two launches on a busy machine; it is SPREAD for all, and at most 0.2 within a launch. The step times of
cryptography were measured on a quiet machine, its memory on a busy one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.generators import Floats

FIGURES = Path(__file__).with_name("figures.json")
PAGE_KIB = 4.0
SPREAD = 0.02
"""Standard deviation of the log of the step time between launches of one version."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """Figures of a version. `overhead_s`: time of a launch besides setup and steps. `noise`: sigma of the log of the
    step time within a launch. `rss`: (step, KiB), interpolated. `fails_at`: the step that fails, with `message`.
    """

    name: str
    overhead_s: float
    setup_s: float
    first_step_s: float
    step_s: float
    noise: float
    rss: tuple[tuple[float, float], ...] = ()
    rss_noise_kib: float = 0.0
    fails_at: int | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class History:
    """One row: its versions, oldest first, and the truth. `signal`: the one in which `first_bad` is bad, or ""."""

    name: str
    kind: str
    signal: str
    first_bad: str
    leak: str
    budget: int
    versions: tuple[Version, ...]


@dataclass(frozen=True, kw_only=True)
class Made:
    """A generated launch with a whole budget, of which a trial may see a part. `step_s`, `rss_kib`: shape (steps,)."""

    version: Version
    step_s: Floats
    rss_kib: Floats


def read(path: Path = FIGURES) -> tuple[History, ...]:
    return tuple(
        History(**{**each, "versions": tuple(_version(version) for version in each["versions"])})
        for each in json.loads(path.read_text())
    )


def write(histories: Sequence[History], path: Path = FIGURES) -> None:
    path.write_text("[" + ",\n".join(json.dumps(asdict(each)) for each in histories) + "]\n")


def _version(raw: Mapping[str, object]) -> Version:
    return Version(**{**raw, "rss": tuple((step, kib) for step, kib in raw["rss"])})  # type: ignore[arg-type,attr-defined]


def launch(history: History, version: Version, number: int) -> Made:
    """Generate launch `number` of a version."""
    rng = np.random.default_rng([zlib.crc32(f"{history.name} {version.name}".encode()), number])
    count = (version.fails_at or history.budget + 1) - 1
    level = version.step_s * np.exp(rng.normal(0, SPREAD))
    step_s = level * np.exp(rng.normal(0, version.noise, count))
    steps = np.arange(1, count + 1)
    known = np.array(version.rss or ((1.0, 50_000.0),))
    smooth = np.interp(steps, known[:, 0], known[:, 1]) + rng.normal(0, 200)
    rss_kib = np.round((smooth + rng.normal(0, version.rss_noise_kib, count)) / PAGE_KIB) * PAGE_KIB
    return Made(version=version, step_s=step_s, rss_kib=rss_kib)
