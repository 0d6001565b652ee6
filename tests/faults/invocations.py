"""Runs every command with odd paths, arguments, matrix files and run directories: is every end a message?

    python -m tests.faults.invocations FOLDER SEED TIMES

prints each invocation that ended in a traceback, in a code that is none of the harness's, or not at all. Root passes
all permissions, so its capability to do so is dropped where setpriv is installed (see `command_of`).
"""

from __future__ import annotations

import faulthandler
import os
import random
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from harness import exit_codes
from harness.cli import COMMANDS, command, run
from tests.players import stored_run

MOST_S = 30
TEXTS = (
    *("", " ", "-", "--", "0", "-1", "1e999", "nan", "10%", "30d", "x" * 300, "a/" * 3000, "~", "~nobody/x", ".", ".."),
    *("\x1b[31m", "new\nline", "\udcff", "\N{SNOWMAN}", "{version}", "${HOME}", "*", "[", "(", "latest", "1", "torch"),
    *(
        "six==1.16.0",
        "six==",
        "python:3.11",
        "sha256:" + "0" * 64,
        "ssh://",
        "ssh://nowhere.invalid",
        "unix:///nowhere",
    ),
    *("process", "docker", "http://[", "https://ada:pw@host/x", "/dev/null", "/dev/full", "/proc/self/mem", "../" * 40),
)
ALWAYS = {
    "sweep": ["--dry-run"], "clean": ["--dry-run"], "narrow": ["--dry-run"], "watch": ["--once"],
}  # fmt: skip
"""What keeps a command from launching anything. Of `demo` and `try`, see `_arguments`."""

SERIES = (
    "repository: nowhere.invalid/x, tags: ['1', '2']", "images: ['PATH', 'nowhere.invalid/x:1']",
    "build: 'PATH', arg: V, versions: ['1', '2']", "locks: {a: 'PATH', b: 'PATH'}",
)  # fmt: skip
SCENARIOS = (
    "command: ['true']", "script: 'PATH'", "program: 'PATH', args: ['TEXT']", "module: 'TEXT'",
    "command: ['PATH'], files: ['PATH'], folder: 'PATH'",
    "command: ['TEXT'], environment: {A: 'TEXT'}, step_pattern: 'TEXT'",
)  # fmt: skip
LINES = (
    "version: 1", "series: {s: {SERIES}}", "hosts: {here: {engine: 'HOST'}}", "scenarios: {one: {SCENARIO}}",
)  # fmt: skip
ODD_LINES = ("\t", "? [", "&a [*a, *a]", "\x00", "series:", "version: 2", "[" * 2000, "é: !!binary x", "- " * 500)


def command_of(folder: Path, seed: int, times: int) -> list[str]:
    """Return the command that runs this module, for root without its capability to pass permissions."""
    words = [sys.executable, "-m", "tests.faults.invocations", str(folder), str(seed), str(times)]
    dropped = "-dac_override,-dac_read_search"
    if os.getuid() == 0 and shutil.which("setpriv"):
        return ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}", *words]
    return words


def make_world(root: Path) -> dict[str, Path]:
    """Make the files, folders and runs that the arguments name; return them by a word for what is odd about them."""
    (root / "good").mkdir(parents=True)
    stored_run.write(root / "good")  # a run in good/reports
    run_of = next(root.glob("good/**/plan.json")).parent
    there = {name: root / name for name in ("file", "empty", "unreadable", "closed", "fixed", "loop", "broken")}
    there["file"].write_text("x\n")
    there["empty"].mkdir()
    there["loop"].symlink_to("loop")
    there["broken"].symlink_to("nowhere")
    there["unreadable"].write_text("x\n")
    for name in ("closed", "fixed"):
        (there[name] / "inner").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
    odd = {
        "long": root / ("x" * 300), "deep": root.joinpath(*["a"] * 3000), "below": there["file"] / "below",
        "inside": there["closed"] / "inner" / "m.yaml", "line": root / "new\nline", "bytes": root / "\udcff",
        "socket": root / "socket", "missing": root / "missing" / "m.yaml", "run": run_of, "runs": run_of.parents[1],
    }  # fmt: skip
    there |= odd
    for name, damage in DAMAGES.items():
        there[name] = root / name / "reports" / "m" / run_of.name
        shutil.copytree(run_of, there[name])
        damage(there[name])
    there["unreadable"].chmod(0)
    there["closed"].chmod(0)
    there["fixed"].chmod(0o555)
    return there


def _replaced_by_folder(run_of: Path) -> None:
    for name in ("plan.json", "result.json"):
        (run_of / name).unlink(missing_ok=True)
        (run_of / name).mkdir()


def _replaced_by_pipes(run_of: Path) -> None:
    for path in [path for path in run_of.rglob("*") if path.is_file()]:
        path.unlink()
        os.mkfifo(path)


def _cut(run_of: Path) -> None:
    for path in [path for path in run_of.rglob("*") if path.is_file()]:
        os.truncate(path, path.stat().st_size // 2)


def _closed(run_of: Path) -> None:
    (run_of / "plan.json").chmod(0)
    (run_of / "trials").chmod(0)


def _fixed(run_of: Path) -> None:
    run_of.chmod(0o555)


DAMAGES = {
    "folders": _replaced_by_folder, "pipes": _replaced_by_pipes, "cut": _cut, "closed run": _closed,
    "fixed run": _fixed,
    "no trials": lambda run_of: shutil.rmtree(run_of / "trials"),
}  # fmt: skip


def arguments(rng: random.Random, world: dict[str, Path]) -> list[str]:
    """Return the words of a random invocation."""
    name = rng.choice(sorted(COMMANDS))
    words = [name, *ALWAYS.get(name, ())]
    params = list(command(name).params)
    for param in rng.sample(params, len(params)):
        is_argument = isinstance(param, click.Argument)
        if not is_argument and rng.random() > (0.6 if isinstance(param.type, click.Path) else 0.15):
            continue
        flag = max(param.opts, key=len)
        if not is_argument and getattr(param, "is_flag", False):
            words.append(flag)
            continue
        for _ in range(rng.choice((1, 1, 2)) if param.nargs == -1 or param.multiple else 1):
            value = _value(rng, world, param)
            words += [value] if is_argument else [f"{flag}={value}"] if rng.random() < 0.5 else [flag, value]
    if name == "try":
        words += ["--write", _path(rng, world), "--", "python", _path(rng, world)]
    if name == "demo":  # it launches, unless it cannot write its files
        words = [name, "--folder", str(world[rng.choice(["file", "long", "deep", "below", "loop"])])]
    if name == "doctor":  # it would measure this machine
        words = [name, rng.choice((str(world["matrix"]), _path(rng, world)))]
    return words


def matrix(rng: random.Random, world: dict[str, Path]) -> str:
    """Return a matrix file with odd paths and texts, and sometimes an odd line, of hosts that cannot be reached."""
    given = {"PATH": _path, "TEXT": lambda rng, world: rng.choice(TEXTS)}
    lines = [rng.choice(ODD_LINES) if rng.random() < 0.05 else line for line in LINES]
    text = "\n".join(lines).replace("SERIES", rng.choice(SERIES)).replace("SCENARIO", rng.choice(SCENARIOS))
    text = text.replace("HOST", rng.choice(("docker", "unix:///nowhere", "ssh://nowhere.invalid")))
    for name, make in given.items():
        while name in text:
            text = text.replace(name, make(rng, world).replace("'", "''").replace(name, ""), 1)
    return text


def _value(rng: random.Random, world: dict[str, Path], param: click.Parameter) -> str:
    if isinstance(param.type, click.Choice) and rng.random() < 0.9:
        return str(rng.choice(list(param.type.choices)))
    if param.name == "matrix" and rng.random() < 0.6:
        return str(world["matrix"])
    is_path = isinstance(param.type, click.Path) or param.name in ("run", "runs", "matrix", "versions")
    return _path(rng, world) if is_path and rng.random() < 0.9 else rng.choice(TEXTS)


def _path(rng: random.Random, world: dict[str, Path]) -> str:
    chosen = str(world[rng.choice(sorted(world))]) if rng.random() < 0.85 else rng.choice(TEXTS)
    return os.path.relpath(chosen) if chosen.startswith("/") and rng.random() < 0.2 else chosen


def ended(words: Sequence[str], out: Path) -> str:
    """Run a command with its streams in files below `out`; return what is wrong with its end, or ""."""
    kept = [os.dup(number) for number in (1, 2)]
    files = [os.open(out / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for name in ("out", "err")]
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
    faulthandler.dump_traceback_later(MOST_S, exit=True, file=kept[1])
    try:
        code = run(list(words))
        sys.stdout.flush()
    finally:
        faulthandler.cancel_dump_traceback_later()
        for number, (before, file) in enumerate(zip(kept, files, strict=True), start=1):
            os.dup2(before, number)
            os.close(before)
            os.close(file)
    told = (out / "err").read_text(errors="replace")
    if "Traceback" in told or code not in exit_codes.MEANINGS or code == exit_codes.OUR_BUG:
        return f"exit code {code}: {told[-1500:]}"
    return "" if code == exit_codes.OK or told or (out / "out").stat().st_size else f"exit code {code} without a word"


def main(root: Path, seed: int, times: int) -> int:
    """Run `times` invocations; return how many went wrong."""
    for name in ("HOME", "TMPDIR", "HARNESS_CACHE"):
        os.environ[name] = str(root / name)
        (root / name).mkdir(parents=True)
    os.environ |= {"DOCKER_HOST": "unix:///nowhere", "PIP_INDEX_URL": "http://127.0.0.1:9/", "NO_COLOR": "1"}
    world, wrong = make_world(root / "world"), 0
    work = root / "work"
    for number in range(seed, seed + times):
        rng = random.Random(number)
        work.mkdir(exist_ok=True)
        os.chdir(work)
        (work / "matrix.yaml").write_text(matrix(rng, world), errors="surrogateescape")
        words = arguments(rng, world | {"matrix": work / "matrix.yaml"})
        (root / "last").write_text(f"{number}: {words!r}"[:5000], errors="replace")
        if problem := ended(words, root):
            wrong += 1
            shown = [word if len(word) < 100 else f"{word[:60]}…({len(word)})" for word in words]
            print(f"{number}: {shown!r}\n{problem}\n", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])) != 0)
