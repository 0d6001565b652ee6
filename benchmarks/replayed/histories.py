"""What was measured of each history, small enough to keep, and the launches that are made from it.

The figures of a history are those of real launches on the process engine (`benchmarks.replayed.record` reads them): how
long a launch takes beside its steps, the step time and its spread within a launch, memory at some steps, and how it
ended. From them each launch is made anew, by a random stream of its own that depends on the version and the number of
the launch alone: whatever the order, launch 2 of a version is the same. The spread between launches is not the measured
one, which two launches on a busy machine do not tell, but SPREAD for all; within a launch it is at most 0.2. The step
times of cryptography are those of a quiet machine, which its memory is not.
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
    """`overhead_s`: of a launch, beside setup and steps. `noise`: spread of the log of the step time within a launch.
    `rss`: (step, KiB), interpolated between. `fails_at`: the step in which a launch ends, with `message`.
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
    """One row: its versions, oldest first, and the truth. `signal`: by which `first_bad` is bad; "" if nothing is."""

    name: str
    kind: str
    signal: str
    first_bad: str
    leak: str
    budget: int
    versions: tuple[Version, ...]


@dataclass(frozen=True, kw_only=True)
class Made:
    """A launch of a whole budget, of which a trial may see a part. `step_s` and `rss_kib` have a row for each step."""

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
    """Make launch `number` of a version."""
    rng = np.random.default_rng([zlib.crc32(f"{history.name} {version.name}".encode()), number])
    count = (version.fails_at or history.budget + 1) - 1
    level = version.step_s * np.exp(rng.normal(0, SPREAD))
    step_s = level * np.exp(rng.normal(0, version.noise, count))
    steps = np.arange(1, count + 1)
    known = np.array(version.rss or ((1.0, 50_000.0),))
    smooth = np.interp(steps, known[:, 0], known[:, 1]) + rng.normal(0, 200)
    rss_kib = np.round((smooth + rng.normal(0, version.rss_noise_kib, count)) / PAGE_KIB) * PAGE_KIB
    return Made(version=version, step_s=step_s, rss_kib=rss_kib)
