"""Mistakes of a user: one or two lines that say where, what, and what to do; and no incomplete files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.run.docker import engine
from tests.integration.conftest import Harness

GOOD = """\
version: 1
series:
  six:
    install: ["six=={version}"]
    versions: ["1.15.0", "1.16.0"]
hosts:
  here: {engine: process}
scenarios:
  quiet:
    script: quiet.py
    params: {a: [1, 2]}
trials: {least: 1, most: 2}
"""

IMAGES = [
    ('    install: ["six=={version}"]\n    versions: ["1.15.0", "1.16.0"]', '    images: ["nosuch.invalid/x:1"]'),
    ("engine: process", "engine: docker"),
]
BUILD = [
    ('    install: ["six=={version}"]', "    build: image\n    arg: V"),
    ("engine: process", "engine: docker"),
]

# (the changes in GOOD, the exit code, what the message must say)
MISTAKES = {
    "unknown key": ([("script:", "skript:")], 2, ["matrix.yaml:10: scenarios.quiet.skript", "script"]),
    "no engine": (
        [("engine: process", 'engine: "tcp://127.0.0.1:9"')],
        3,
        ["matrix.yaml:7: hosts.here", "Cannot connect to the Docker daemon at tcp://127.0.0.1:9", "listens there"],
    ),
    "no such interpreter": ([("    install:", '    python: "3.5"\n    install:')], 3, ["no Python 3.5", "3.1"]),
}
NEED_DOCKER = {
    "no such image": (IMAGES, 3, ["matrix.yaml:4: series.six.images", "nosuch.invalid/x:1"]),
    "build that fails": (BUILD, 3, ["matrix.yaml:6: series.six.versions", "the last words of the build"]),
}


def changed(text: str, edits: list[tuple[str, str]]) -> str:
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def prepare(folder: Path) -> None:
    (folder / "quiet.py").write_text('"""Nothing."""\n\n\ndef setup(a=1):\n    return lambda: None\n')
    (folder / "image").mkdir()
    base = os.environ.get("HARNESS_BASE", "harness-base:bookworm")
    dockerfile = f"FROM {base}\nARG V\nRUN echo the last words of the build >&2; false\n"
    (folder / "image" / "Dockerfile").write_text(dockerfile)


@pytest.mark.parametrize("name", [*MISTAKES, *[pytest.param(name, marks=pytest.mark.docker) for name in NEED_DOCKER]])
def test_a_mistake_is_named_with_its_place(harness: Harness, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who mistypes must not have to read our code to find the mistake, or lose a night's run to it."""
    monkeypatch.setitem(engine.open_engine.__kwdefaults__, "waits_s", ())  # no registry is asked again after 5 and 20 s
    edits, code, words = {**MISTAKES, **NEED_DOCKER}[name]
    prepare(harness.folder)
    ended = harness.run_here("sweep", harness.write(changed(GOOD, edits)))
    assert ended.code == code, ended.err
    lines = [line for line in ended.err.splitlines() if "matrix.yaml:" in line]
    assert 1 <= len(lines) <= 2
    for word in words:
        assert word in ended.err
    if code == 2:
        assert ended.out == ""
        assert not (harness.folder / "reports").exists()


def test_a_client_that_cannot_begin_says_why_on_the_first_screen(harness: Harness) -> None:
    """The terminal said `untested`, because the traceback of each launch named another folder."""
    serves = "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)"
    (harness.folder / "server.py").write_text(f"import http.server, sys\n{serves}.serve_forever()\n")
    (harness.folder / "client.py").write_text("def setup(url):\n    raise RuntimeError('no TOKEN')\n")
    edits = [("    script: quiet.py\n    params: {a: [1, 2]}", '    serve: [python, server.py, "{port}"]\n'
              "    files: [server.py]\n    client: client.py")]  # fmt: skip
    ended = harness.run_here("sweep", harness.write(changed(GOOD, edits)))
    assert ended.code == 3, ended.err
    assert "untested: setup of the client: RuntimeError: no TOKEN (client.py:2" in " ".join(ended.out.split())


def test_a_full_disk_is_said_and_nothing_is_torn(harness: Harness) -> None:
    """A run of days must end with a message about the disk, and its journal must still be readable."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    prepare(harness.folder)
    small = harness.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", small], check=True)
    try:
        ended = harness.run("sweep", harness.write(GOOD), "--out", "small")
        assert ended.code == 3
        assert "cannot write: No space left on device" in ended.err
        assert "--out" in ended.err
        assert not list(small.rglob("*.tmp"))
    finally:
        subprocess.run(["umount", small], check=True)
