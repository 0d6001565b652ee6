"""Real sweeps of planted programs: versions built as wheels, a matrix, `harness sweep`, and what its summary says."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.planted_programs.catalogue import Planted

PROGRAMS = Path(__file__).with_name("planted_programs")
ROOT = PROGRAMS.parents[1]
VERSIONS = ("1.0", "1.1", "1.2", "1.3")
BEFORE, FIRST_BAD = "1.1", "1.2"
QUIET_VERSIONS = tuple(f"1.{number}" for number in range(8))
TIMEOUT_S = 1800.0
SLOW_MODULE = """\"\"\"Takes its time to be imported.\"\"\"
import os, time
time.sleep(float(os.environ["PLANTED_IMPORT_S"]))
"""
START = 'import os; "PLANTED_START_S" in os.environ and __import__("planted_carrier.start")\n'
SLOW_START = """\"\"\"Delays each start of Python.\"\"\"
import os, time
from planted_carrier import planted
time.sleep(planted(float(os.environ["PLANTED_START_S"])))
"""


class Refused(Exception):
    """Raised if there is no summary: the matrix file was refused, or the sweep did not end. The first line says why."""


@dataclass(frozen=True, kw_only=True)
class Swept:
    """The result of a sweep: its summary, the text of its output and report, and its directory."""

    summary: Mapping[str, Any]
    told: str
    directory: Path


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """A temporary folder with the wheels, the environments and the runs of one benchmark."""

    folder: Path

    def build(self) -> None:
        for version in QUIET_VERSIONS:
            build_wheel(self.folder / "healthy", version, bad=False)
        for version in VERSIONS:
            build_wheel(self.folder / "planted", version, bad=version >= FIRST_BAD)

    def sweep(self, matrix: Mapping[str, Any]) -> Swept:
        """Run a matrix in a new folder, which the caller removes. Raises Refused if there is no summary."""
        token = secrets.token_hex(4)
        place = self.folder / f"sweep-{token}"
        (place / "tmp").mkdir(parents=True)
        for path in PROGRAMS.glob("*.py"):
            shutil.copy(path, place)
        (place / "matrix.yaml").write_text(json.dumps(with_token(matrix, token)))
        try:
            code, out, errors = self._run(place)
        except subprocess.TimeoutExpired:
            raise Refused(f"not done after {TIMEOUT_S:.0f} s") from None
        finally:
            remove_traces_of(token)
        return _read(place, code=code, out=out, errors=errors)

    def _run(self, place: Path) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr of the sweep. If we are interrupted, the sweep is ended by SIGTERM."""
        with subprocess.Popen(
            [sys.executable, "-m", "harness", "sweep", "matrix.yaml"],
            cwd=place, env=self._environment(place / "tmp"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace",
        ) as process:  # fmt: skip
            try:
                out, errors = process.communicate(timeout=TIMEOUT_S)
            except BaseException:
                process.terminate()
                process.communicate()
                raise
        return process.returncode, out, errors

    def _environment(self, temporary: Path) -> dict[str, str]:
        """Return an environment with its own caches and locks: nothing is left, and no sweep waits for another."""
        own = {"HARNESS_CACHE": self.folder / "cache", "UV_CACHE_DIR": self.folder / "uv", "TMPDIR": temporary}
        return {**os.environ, "PYTHONPATH": str(ROOT), "UV_OFFLINE": "1", **{name: str(at) for name, at in own.items()}}

    def series(self, kind: str, versions: Sequence[str]) -> dict[str, Any]:
        """Return the series of the carrier package; `kind` is `planted` or `healthy`."""
        wheel = self.folder / kind / "planted_carrier-{version}-py3-none-any.whl"
        return {"carrier": {"install": [f"planted-carrier @ file://{wheel}"], "versions": list(versions)}}


def _read(place: Path, *, code: int, out: str, errors: str) -> Swept:
    directory = place / "reports" / "matrix" / "latest"
    try:
        summary = json.loads((directory / "summary.json").read_text())
        report = (directory / "report.md").read_text()
    except OSError:
        lines = errors.strip().splitlines() or [f"exit code {code}"]
        raise Refused(lines[0]) from None
    return Swept(summary=summary, told=out + report, directory=directory.resolve())


def remove_traces_of(token: str) -> None:
    """Remove what the programs of a sweep left outside their own folders."""
    for folder in ("/dev/shm", "/tmp"):
        for path in Path(folder).glob(f"planted-{token}-*"):
            path.unlink(missing_ok=True)


def with_token(matrix: Mapping[str, Any], token: str) -> dict[str, Any]:
    scenarios = {
        name: {**scenario, "environment": {**scenario.get("environment", {}), "PLANTED_TOKEN": token}}
        for name, scenario in matrix["scenarios"].items()
    }
    return {**matrix, "scenarios": scenarios}


def build_wheel(folder: Path, version: str, *, bad: bool) -> Path:
    """Build a wheel of the carrier package; good and bad versions differ in one line."""
    folder.mkdir(exist_ok=True)
    path = folder / f"planted_carrier-{version}-py3-none-any.whl"
    info = f"planted_carrier-{version}.dist-info"
    files = {
        "planted_carrier/__init__.py": (PROGRAMS / "carrier.py").read_text(),
        "planted_carrier/version.py": f'VERSION = "{version}"\nBAD = {bad}\n',
        "planted_carrier/slow.py": SLOW_MODULE,
        "planted_carrier/start.py": SLOW_START,
        "planted_start.pth": START,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: planted-carrier\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: planted\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
    return path


def scenario_name(program: Planted, size: float | None) -> str:
    return program.name if size is None else f"{program.name}-{size:g}"


def matrix_of(
    program: Planted, sizes: Sequence[float | None], series: Mapping[str, Any], gpu_packages: Path | None = None
) -> dict[str, Any]:
    """Return a matrix with one scenario per size, so that no size counts among the comparisons of another.

    With `gpu_packages`, a folder with PyTorch, the programs run on this machine's GPUs.
    """
    first, budget = program.steps
    file = f"{program.family}.py"
    started: dict[str, Any] = {"script": file}
    if program.family in ("runs", "groups"):
        started = {"program": file, "args": ["{program}", "{amount}"]}
    scenarios = {
        scenario_name(program, size): {
            **started,
            "params": {"program": program.name, "amount": program.amount(size)},
            "steps": {"first": first, "budget": budget},
            "timeout": "5m",
            **({"environment": {"PLANTED_START_S": program.amount(size)}} if program.signal == "start_time" else {}),
            **program.more,
        }
        for size in sizes
    }
    trials = {"least": 3, "most": program.most_trials}
    made = {"version": 1, "series": dict(series), "scenarios": scenarios, "trials": trials}
    if gpu_packages is None:
        return made
    for scenario in scenarios.values():
        scenario["environment"] = {"PYTHONPATH": str(gpu_packages)}
    return {**made, "hosts": {"gpu": {"engine": "process", "gpus": "all"}}}
