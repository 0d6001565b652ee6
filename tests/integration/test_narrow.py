"""`harness narrow`, as a user starts it: the planted package is named and proven, and nothing is left behind."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGES = tuple(f"part{n}" for n in range(6))
CULPRIT = "part4"


def wheel(folder: Path, name: str, version: str, code: str, *requires: str) -> Path:
    """A wheel of one module, made by hand: no index is asked."""
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {x}" for x in requires)]
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": "\n".join([*metadata, "", ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            archive.writestr(place, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def lock(folder: Path, version: str) -> Path:
    """All packages in that version; the culprit's version 2 fails."""
    lines = []
    for name in PACKAGES:
        fails = name == CULPRIT and version == "2"
        code = f"VERSION = {version!r}\ndef run():\n    {'raise OSError(28)' if fails else 'pass'}\n"
        needs = ("part1>=2",) if (name, version) == ("part0", "2") else ()
        path = wheel(folder, name, version, code, *needs)
        lines.append(f"{name} @ {path.as_uri()}")
    file = folder / f"lock{version}.txt"
    file.write_text("\n".join(lines))
    return file


def harness(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HARNESS_CACHE": str(folder / "cache"), "TMPDIR": str(folder)}
    line = [sys.executable, "-m", "harness", "narrow", "--out", str(folder / "runs"), *map(str, words)]
    return subprocess.run(line, env=environ, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def files(tmp_path: Path) -> tuple[object, ...]:
    return "--good", lock(tmp_path, "1"), "--bad", lock(tmp_path, "2")


def test_the_package_that_fails_is_named_proven_and_its_hybrids_removed(
    files: tuple[object, ...], tmp_path: Path
) -> None:
    """One test for the whole way, because each launch takes time: some 20 of them."""
    command = ("--", "python", "-c", "; ".join(f"import {name}; {name}.run()" for name in PACKAGES))
    done = harness(*files, *command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"culprit: {CULPRIT} 1 → 2" in done.stdout
    assert f"bad        A with {CULPRIT} from B" in done.stdout
    assert f"good       B with {CULPRIT} from A" in done.stdout
    environments = [path for path in (tmp_path / "cache" / "environments").glob("*") if path.is_dir()]
    assert len(environments) == 2, "A and B stay"
    (decisions,) = [path for path in tmp_path.glob("runs/*/*/decisions.jsonl") if '"prove"' in path.read_text()]
    assert all(json.loads(line)["reason"] for line in decisions.read_text().splitlines())


def test_sides_that_do_not_differ_in_what_was_run_are_told_so(files: tuple[object, ...], tmp_path: Path) -> None:
    done = harness(*files, "--", "python", "-c", "pass", folder=tmp_path)
    assert done.returncode == 2
    assert "nothing that was measured is worse in the bad one" in done.stderr
    assert "Traceback" not in done.stderr
