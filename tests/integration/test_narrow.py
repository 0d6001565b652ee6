"""`harness narrow`, as a user starts it: the planted package is named and proven, and nothing is left behind."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.integration.conftest import Ended, Harness

PACKAGES = tuple(f"part{n}" for n in range(6))
CULPRIT = "part4"


def wheel(folder: Path, name: str, version: str, code: str, *requires: str) -> Path:
    """Write a wheel of one module by hand, so that no index is asked."""
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
    """Write a lock file with all packages in that version; the culprit's version 2 fails."""
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


def harness(*words: object, folder: Path, command: str = "narrow") -> Ended:
    own = Harness(folder, {"HARNESS_CACHE": str(folder / "cache"), "TMPDIR": str(folder)})
    return own.run_here(command, "--in" if command == "issue" else "--out", str(folder / "runs"), *map(str, words))


@pytest.fixture
def files(tmp_path: Path) -> tuple[object, ...]:
    return "--good", lock(tmp_path, "1"), "--bad", lock(tmp_path, "2")


def test_the_package_that_fails_is_named_proven_and_its_hybrids_removed(
    files: tuple[object, ...], tmp_path: Path
) -> None:
    """One test covers everything, because each of its 20 or so launches takes time."""
    command = ("--", "python", "-c", "; ".join(f"import {name}; {name}.run()" for name in PACKAGES))
    done = harness(*files, *command, folder=tmp_path)
    assert done.code == 1, done.err
    assert f"culprit: {CULPRIT} 1 → 2; lock1 with it is bad, lock2 without it is good" in done.out
    assert f"lock1 with {CULPRIT}: bad in 2 of 2 launches" in done.out
    assert f"lock2 without {CULPRIT}: good in 2 launches" in done.out
    environments = [path for path in (tmp_path / "cache" / "environments").glob("*") if path.is_dir()]
    assert len(environments) == 2, "A and B stay"
    (decisions,) = [path for path in tmp_path.glob("runs/*/*/decisions.jsonl") if '"prove"' in path.read_text()]
    kinds = [json.loads(line)["kind"] for line in decisions.read_text().splitlines()]
    assert kinds.index("sham") < kinds.index("isolate"), "swapping itself is tried before anything is swapped"
    assert all(json.loads(line)["reason"] for line in decisions.read_text().splitlines())
    assert reproduced(tmp_path) == [1, 0, 1], "the bad version; with the good part; with the bad part again"


def reproduced(folder: Path) -> list[int]:
    """Run the commands of the bug report as its reader would; return the exit code of the script for each install."""
    told = harness("latest", "1", "--folder", folder / "bug", folder=folder, command="issue")
    assert told.code == 0, told.err
    commands = re.findall(r"^```sh\n(.*?)^```$", told.out, re.MULTILINE | re.DOTALL)
    assert [text.count("repro.py") for text in commands] == [1, 2]
    script = re.sub(r"(repro\.py).*$", r"\1; echo ended $?", "".join(commands), flags=re.MULTILINE)
    environ = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder / "bug",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return [int(code) for code in re.findall(r"^ended (\d+)$", done.stdout, re.MULTILINE)]


def cells_told(done: Ended) -> int:
    """Return how many cells the log tells of: a line each, because their launches end alike."""
    return len(re.findall(r"^(?:cell|BAD) ", done.err, re.MULTILINE))


def test_a_dry_run_tells_the_groups_and_does_not_run_the_command(files: tuple[object, ...], tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    done = harness(*files, "--dry-run", "--", "python", "-c", f"open({str(ran)!r}, 'w')", folder=tmp_path)
    assert (done.code, cells_told(done), ran.exists()) == (0, 0, False), done.err
    assert "the two versions differ in 6 groups; finding one culprit among them takes about 7 hybrids" in done.out
    assert f"{CULPRIT}  1 → 2" in done.out
    assert not (tmp_path / "runs").exists(), "nothing was measured"


def test_sides_that_are_swapped_are_told_by_their_first_launches(files: tuple[object, ...], tmp_path: Path) -> None:
    _, good, _, bad = files
    done = harness(
        "--good", bad, "--bad", good, "--", "python", "-c", f"import {CULPRIT}; {CULPRIT}.run()", folder=tmp_path
    )
    assert done.code == 2
    assert "lock2: should be good, but fails" in done.err
    assert "and lock1 does not: are they swapped?" in done.err
    assert cells_told(done) == 2, done.err


def test_nothing_is_launched_for_a_package_that_is_gone_or_for_sides_that_are_equal(
    files: tuple[object, ...], tmp_path: Path
) -> None:
    _, good, _, bad = files
    same = tmp_path / "same.txt"
    same.write_text("# the same\n" + "\n".join(reversed(Path(str(good)).read_text().splitlines())))
    equal = harness("--good", good, "--bad", same, "--", "python", "-c", "pass", folder=tmp_path)
    assert (equal.code, cells_told(equal)) == (2, 0)
    assert "lock1 and same: no distribution, mapped library or variable differs" in equal.err
    (tmp_path / "part0-2-py3-none-any.whl").unlink()
    gone = harness("--good", good, "--bad", bad, "--", "python", "-c", "pass", folder=tmp_path)
    assert (gone.code, cells_told(gone)) == (3, 0)
    assert "part0-2-py3-none-any.whl" in gone.err.splitlines()[-1]


def test_sides_that_do_not_differ_in_what_was_run_are_told_so(files: tuple[object, ...], tmp_path: Path) -> None:
    done = harness(*files, "--", "python", "-c", "pass", folder=tmp_path)
    assert done.code == 2
    assert "nothing that was measured is worse in the bad one" in done.err
    assert "Traceback" not in done.err
