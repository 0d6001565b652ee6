"""What the client of servers costs, beside `wrk`, aiperf and a plain loop on the same server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.agent import samples
from harness.run.trial.payload import agent_files

BOUND_US = 50.0
SERVER = """
import contextlib, re, socket, sys, threading
BODY = b'{"score": 42, "object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "hi"}}]}'
OK = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(BODY) + BODY
LENGTH = re.compile(rb"(?i)content-length: (\\d+)")

def answer(link):
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):  # wrk resets its connections
        while got := link.recv(65536):
            if (length := LENGTH.search(got)) is not None:  # of aiperf, which may send the body later
                while len(got.partition(b"\\r\\n\\r\\n")[2]) < int(length[1]):
                    got += link.recv(65536)
            link.sendall(OK)

door = socket.create_server(("127.0.0.1", 0), backlog=64)
print(door.getsockname()[1], flush=True)
while True:
    threading.Thread(target=answer, args=(door.accept()[0],), daemon=True).start()
"""
PLAIN = """
import socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for _ in range(int(sys.argv[2])):
    link.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    link.recv(65536)
"""
SCRIPT = """
import socket

def setup(url):
    host, port = url.split("//")[1].split(":")
    link = socket.create_connection((host, int(port)))
    def request():
        link.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        link.recv(65536)
    return request
"""
TOKENIZER: Mapping[str, Mapping[str, Any]] = {
    "tokenizer.json": {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "the": 1}, "unk_token": "[UNK]"},
    },
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"},
}
"""A tokenizer of one word, because aiperf needs one, and would fetch it."""
Run = Callable[[int, int], float]
"""Sends about so many requests, of which so many at a time, and returns the processor seconds of the client, with
the number of requests."""


def client(requests: int = 20000, turns: int = 3) -> bool:
    """Measure the processor time of the client for each request, beside a plain loop, `wrk` and aiperf, if these are
    installed.

    Each figure is the least of several turns, in which all but aiperf take part, without what a start costs. The bound
    is that of the built-in client with one request at a time.
    """
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            found: dict[str, list[float]] = {}
            for turn in range(turns):
                for at_a_time in (1, 8):
                    for name, sent in _senders(port).items():
                        if (name == "plain loop" and at_a_time > 1) or (name == "aiperf" and turn):
                            continue  # aiperf takes two minutes, and so much that one turn tells it
                        found.setdefault(f"{name}, {at_a_time} at a time", []).append(sent(requests, at_a_time))
        finally:
            server.kill()
    for name, each in sorted(found.items()):
        print(f"{name}: {1e6 * min(each):.1f} µs of processor time a request")
    return 1e6 * min(found["client, 1 at a time"]) <= BOUND_US


def _senders(port: int) -> dict[str, Run]:
    senders: dict[str, Run] = {
        "client": lambda requests, at_a_time: _own(port, requests, at_a_time),
        "client with a script": lambda requests, at_a_time: _own(port, requests, at_a_time, script=SCRIPT),
        "plain loop": lambda requests, _: _beyond_start(
            lambda number: _cpu_s([sys.executable, "-c", PLAIN, str(port), str(number)]), requests
        ),
    }
    if shutil.which("wrk"):
        senders["wrk"] = lambda _, at_a_time: _wrk(port, at_a_time)
    if shutil.which("aiperf"):
        senders["aiperf"] = lambda requests, at_a_time: _beyond_start(
            lambda number: _aiperf_s(port, number, at_a_time), requests // 5
        )
    return senders


def _beyond_start(cpu_s: Callable[[int], float], requests: int) -> float:
    """Return the processor seconds of a request: those of many more requests, without those of few."""
    few = requests // 10
    return (cpu_s(requests) - cpu_s(few)) / (requests - few)


def _own(port: int, requests: int, at_a_time: int, *, script: str = "") -> float:
    return _beyond_start(lambda number: _client_s(port, number, at_a_time, script), requests)


def _client_s(port: int, requests: int, at_a_time: int, script: str) -> float:
    """Run the agent's client for so many requests, and answer it as the supervisor does."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in {**agent_files(), "scenario/client.py": script.encode()}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        request: dict[str, Any] = {"method": "GET", "path": "/", "headers": {}, "body": None, "weight": 1}
        serve: dict[str, Any] = {
            "ready": {}, "requests": [request], "concurrency": at_a_time, "rate": None, "seed": 1, "timeout_s": 60.0,
            "script": "scenario/client.py" if script else None,
        }  # fmt: skip
        (root / "job.json").write_text(json.dumps({"looks": [requests], "params": {}, "serve": serve}))
        size = samples.table_bytes(requests)  # type: ignore[no-untyped-call]
        table = samples.shared_file("samples", size)  # type: ignore[no-untyped-call]
        (events, told), (asked, answers) = os.pipe(), os.pipe()
        words = [sys.executable, "-B", str(root / "start.py"), "client", *map(str, (told, asked, table, port))]
        process = subprocess.Popen([*words, repr(time.perf_counter())], pass_fds=(told, asked, table))
        os.close(told)
        with os.fdopen(events) as heard:
            for line in heard:
                event = json.loads(line)
                if event["type"] in ("failed", "broken", "gave_up"):
                    raise RuntimeError(event["message"])
                if event["type"] in ("ready", "look"):
                    os.write(answers, b"go\n")
                elif event["type"] == "ended":
                    break
        os.write(answers, b"go\n")
        for fd in (asked, answers, table):
            os.close(fd)
        return _ended_s(process)


def _wrk(port: int, at_a_time: int) -> float:
    command = ["wrk", "-t1", f"-c{at_a_time}", "-d2s", f"http://127.0.0.1:{port}/"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    made = re.search(r"(\d+) requests in", process.stdout.read())
    cpu_s = _ended_s(process)
    return cpu_s / int(made[1]) if made else float("nan")


def _aiperf_s(port: int, requests: int, at_a_time: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tok").mkdir()
        for name, content in TOKENIZER.items():
            (Path(folder) / "tok" / name).write_text(json.dumps(content))
        command = [
            "aiperf", "profile", "--url", f"http://127.0.0.1:{port}", "--endpoint-type", "chat",
            "--model", "mock-model", "--tokenizer", "./tok", "--isl", "4", "--ui", "none",
            "--concurrency", str(at_a_time), "--request-count", str(requests), "--output-artifact-dir", folder,
        ]  # fmt: skip
        return _ended_s(subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL))


def _cpu_s(command: Sequence[str]) -> float:
    return _ended_s(subprocess.Popen(command))


def _ended_s(process: subprocess.Popen[Any]) -> float:
    """Wait for the end of a process; return its processor seconds."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime
