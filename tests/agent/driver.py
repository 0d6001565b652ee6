"""Drives the real agent as the harness does: packs it, starts the supervisor, talks and listens."""

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until

AGENT = Path(__file__).parents[2] / "harness" / "agent"
PLANTED = Path(__file__).parents[2] / "scenarios" / "planted.py"
MARKER = "7d1fa7d1fa7d1fa"


def pack(root: Path, script: Path | str | None, *, files: Mapping[str, str] = {}, **job: Any) -> None:
    """Write what the harness copies into a container. `script`: a file, or the text of `mine.py`; `files`: the texts
    of others beside it.
    """
    (root / "scenario").mkdir(parents=True)
    (root / "harness_agent").symlink_to(AGENT)  # hundreds of copies, and of bytecode, would take longer
    shutil.copy(AGENT / "start.py", root / "start.py")
    name = "mine.py" if isinstance(script, str) else script and script.name
    if isinstance(script, Path):
        shutil.copy(script, root / "scenario")
    for beside, text in ({"mine.py": script} if isinstance(script, str) else files).items():
        path = root / "scenario" / beside
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    defaults = {
        "marker": MARKER,
        "script": name and f"scenario/{name}",
        "params": {},
        "command": None,
        "step_pattern": None,
        "printed": None,
        "judge_exit": False,
        "looks": [50, 100],
        "timeout_s": 30.0,
        "answer_timeout_s": 30.0,
        "environment": ["PLANTED_*"],
    }
    (root / "job.json").write_text(json.dumps({**defaults, **job}))


def pack_with(monkeypatch: pytest.MonkeyPatch, folder: Path, module: str, old: str, new: str) -> None:
    """Replace a text in a module of the agents that `pack` copies from now on, for example to shorten a timeout in a
    test.
    """
    changed = folder / "changed agent"
    if not changed.exists():  # several calls may each replace a text
        shutil.copytree(AGENT, changed, ignore=shutil.ignore_patterns("__pycache__"))
    before = (changed / module).read_text()
    assert old in before
    (changed / module).write_text(before.replace(old, new))
    monkeypatch.setattr("tests.agent.driver.AGENT", changed)


@dataclass
class Told:
    """Everything that one trial reported."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    noise: bytes = b""
    exit_code: int | None = None

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        (message,) = self.all(kind)
        return message

    @property
    def done(self) -> dict[str, Any]:
        assert self.messages[-1]["type"] == "done", self.messages[-1]
        return self.one("done")

    @property
    def counts(self) -> dict[str, list[float | None]]:
        """The counts of the last message that has any, which holds all rows."""
        columns: dict[str, list[float | None]] = self.all("counts")[-1]["columns"]
        return columns

    def column(self, name: str) -> list[float | None]:
        return [value for message in self.all("samples") for value in message["columns"].get(name, [])]


class Agent:
    """A running supervisor. Use as a context manager: it is killed at the end, whatever happened."""

    def __init__(
        self, root: Path, *, python: str, environment: Mapping[str, str] = {}, enter: Sequence[str] = ()
    ) -> None:
        """`enter`: the words of a command that starts the supervisor, such as a wrapper."""
        start = [python, "-B", str(root / "start.py")]
        empty_home = {"HOME": str(root / "home")}  # every agent begins with a walk through its home
        self.process = subprocess.Popen(
            [*enter, *start],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **empty_home, **environment},
        )
        self.told = Told()
        self._buffer = b""

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def send(self, answer: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the agent has ended: its last messages say so
            self.process.stdin.write(json.dumps({"answer": answer}).encode() + b"\n")
            self.process.stdin.flush()

    def hang_up(self) -> None:
        """Close the agent's stdin, and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None
        self.process.wait(5)

    def next(self, timeout_s: float = 30.0) -> dict[str, Any] | None:
        """Return the next message; None at the end of output."""
        until = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            data = self._read(until - time.monotonic())
            if not data:
                return None
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        if not line.startswith(MARKER.encode() + b" "):
            self.told.noise += line
            return self.next(timeout_s)
        message: dict[str, Any] = json.loads(line[len(MARKER) + 1 :])
        self.told.messages.append(message)
        return message

    def _read(self, timeout_s: float) -> bytes:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(timeout_s), f"nothing from the agent in {timeout_s:.0f} s: {self.told.messages[-1:]}"
        return os.read(self.process.stdout.fileno(), 1 << 20)

    def until(self, kind: str) -> dict[str, Any]:
        """Return the next message of that type."""
        while (message := self.next()) is not None:
            if message["type"] == kind:
                return message
        raise AssertionError(f"the agent ended without {kind}: {self.errors()}")

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def finish(self, answer: str = "go") -> Told:
        """Answer every look until the agent ends."""
        while (message := self.next()) is not None:
            if message["type"] == "look" and not message["last"]:
                self.send(answer)
        self.told.exit_code = self.process.wait(30)
        return self.told


LATE = """
import os, time
write = os.write
def late(fd, data):
    time.sleep(0.6 if b'"ended"' in data else 0)
    return write(fd, data)
os.write = late
"""
"""Delays the message with which a process tells its end."""


def run(
    root: Path,
    python: str,
    script: Path | str | None = PLANTED,
    *,
    answer: str = "go",
    variables: Mapping[str, str] = {},
    enter: Sequence[str] = (),
    **job: Any,
) -> Told:
    """Return what a whole trial tells. Each look gets this answer; `variables` are those of the agent."""
    pack(root, script, **job)
    with Agent(root, python=python, environment=variables, enter=enter) as agent:
        return agent.finish(answer)


def run_program(root: Path, python: str, text: str, files: Mapping[str, str] = {}, **job: Any) -> Told:
    """Return what the program train.py tells, beside its files, as the harness copies them."""
    asked = {"path": "scenario/train.py", "module": None, "args": [], "steps_are": "auto"}
    keys = (*asked, "launcher")
    asked.update({name: job.pop(name) for name in keys if name in job})
    return run(root, python, None, program=asked, files={"train.py": text, **files}, **job)


def scenario_pid(agent: Agent) -> int:
    """Return the pid of the scenario process of a running agent."""
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    return int(children[0])


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def wait_until_dead(pid: int, timeout_s: float = 5.0) -> bool:
    return until(lambda: not is_alive(pid), seconds=timeout_s)
