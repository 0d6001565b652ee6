"""Clients of the user's own: their requests are steps, their numbers are results, and their mistakes are theirs."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent import driver
from tests.agent.driver import Told, pack_with
from tests.agent.test_serving import POST, SERVER, measured

SENDS = """
    import socket

    def setup(url, size=1):
        place = url.split("//")[1].split(":")
        link = socket.create_connection((place[0], int(place[1])))
        def request():
            link.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
            if not link.recv(65536):
                raise EOFError("nobody is there")
            return {"quality": 0.5 * size}
        return request
"""
LOADS = "import sys, urllib.request\nfor _ in range(5): urllib.request.urlopen(sys.argv[1]).read()\n"


def run(root: Path, fault: str = "", *, client: str = "", generator: str = "", python: str = sys.executable,
        **changed: Any) -> Told:  # fmt: skip
    job = {
        name: changed.pop(name) for name in ("looks", "results", "params", "printed", "variables") if name in changed
    }
    job["timeout_s"] = changed.pop("limit_s", 30.0)
    serve = {
        "port": None, "ready": {"http": None, "line": None}, "ready_timeout_s": None, "requests": [],
        "script": "scenario/client.py" if client else None, "wanted": [],
        "generator": [python, "load.py", "{url}"] if generator else None,
        "concurrency": 1, "rate": None, "seed": 1, "timeout_s": 5.0, **changed,
    }  # fmt: skip
    files = {"server.py": SERVER.read_text(), "client.py": client, "load.py": generator}
    files["lines.jsonl"] = '\ufeff{"get": "/{size}"}\n\n{"post": "/b", "json": [1]}\n'
    command = [python, "server.py", "{port}", *([fault] if fault else [])]
    return driver.run(root, python, None, files=files, command=command, serve=serve, **job)


@pytest.mark.smoke
def test_each_call_of_a_script_is_a_request(tmp_path: Path, python: str) -> None:
    told = run(tmp_path / "own", client=SENDS, python=python, concurrency=3, params={"size": 4, "other": 1})
    assert (told.done["end"], told.done["message"], told.done["last_step"]) == ("completed", "", 100)
    assert told.one("ready")["step_kind"] == "request"
    assert len(measured(told, "step_s")) == 100
    assert set(told.column("quality")) == {2.0}
    built_in = run(tmp_path / "built-in", python=python, concurrency=3, requests=[POST])
    assert told.counts["threads"][-1] == built_in.counts["threads"][-1]  # those of the client are not the server's


@pytest.mark.parametrize(
    "client",
    [
        "def setup(url, **params):\n    return lambda: {'quality': params['size'] + params['other']}\n",
        "import functools\ndef of(place, url, size):\n    return lambda: {'quality': place + size}\n"
        "setup = functools.partial(of, 1)\n",
    ],
)
def test_any_setup_gets_the_params_that_it_takes(tmp_path: Path, client: str) -> None:
    told = run(tmp_path, client=client, params={"size": 4, "other": 1})
    assert (told.done["end"], told.done["message"]) == ("completed", "")
    assert set(told.column("quality")) == {5}


@pytest.mark.parametrize(
    ("returns", "items"), [("{'items': 32}", 96), ("8", 24), ("True", 3), ("iter([5, 6])", 3), ("{'items': 'x'}", None)]
)
def test_the_items_that_a_script_returns_are_its_throughput(tmp_path: Path, returns: str, items: int | None) -> None:
    """Otherwise tokens a second cannot be compared, although a step may return them."""
    client = f"def setup(url):\n    return lambda: {returns}\n"
    told = run(tmp_path, client=client, concurrency=3)
    assert set(told.column("items")) == {items}


def test_the_parts_that_a_script_yields_are_tokens(tmp_path: Path) -> None:
    streams = """
        import time

        def setup(url):
            def request():
                for _ in range(4):
                    time.sleep(0.002)
                    yield
            return request
    """
    told = run(tmp_path, client=streams, rate=300.0)
    assert told.done["end"] == "completed"
    assert 0.002 <= min(measured(told, "first_token_s")) < min(measured(told, "step_s"))
    assert min(measured(told, "token_s")) >= 0.002


def test_a_script_whose_connection_broke_is_set_up_again(tmp_path: Path) -> None:
    """Otherwise one request that fails would fail all that follow."""
    told = run(tmp_path, "closes", client=SENDS)
    assert told.done["end"] == "completed"
    assert told.done["message"].startswith("50 of 100 requests failed: ")  # how a write ends depends on the moment


def test_a_version_that_is_slow_for_a_moment_does_not_hang(tmp_path: Path) -> None:
    """The second late reply comes while another connection takes the place of the first."""
    late_at_once = """
        import threading, time
        made, both = [], threading.Barrier(2)

        def setup(url):
            made.append(None)
            number, calls = len(made), []
            if number > 3:
                time.sleep(0.4)
            def request():
                calls.append(None)
                if number <= 2 and len(calls) == 5:
                    both.wait()
                    time.sleep(1.2 if number == 1 else 0.75)
            return request
    """
    told = run(tmp_path, client=late_at_once, concurrency=3, timeout_s=0.45)
    assert (told.done["end"], told.done["last_step"]) == ("completed", 100)


def test_a_server_that_hangs_in_the_setup_of_another_connection_hangs(tmp_path: Path) -> None:
    greets = SENDS.replace("def request", "link.sendall(b'GET / HTTP/1.1'), link.recv(65536)\n        def request")
    told = run(tmp_path, "hangs", client=greets, timeout_s=0.3)
    assert told.done["end"] == "hang"
    assert "3 requests in a row failed: no reply within 0.3 s" in told.done["message"]


@pytest.mark.parametrize(
    ("does", "end"), [("time.sleep(9)", "hang"), ("raise OSError('HTTP 500')", "crash")]
)  # fmt: skip
def test_a_connection_that_cannot_be_set_up_later_is_the_server_s_outcome(tmp_path: Path, does: str, end: str) -> None:
    later = (
        f"import time\nmade = []\ndef setup(url):\n    made.append(1)\n    if len(made) > 1: {does}\n    return int\n"
    )
    told = run(tmp_path, client=later, concurrency=2, timeout_s=0.3)
    assert told.done["end"] == end
    assert "setup of the client: " in told.done["message"]


@pytest.mark.parametrize(
    ("client", "message"),
    [
        ("import no_such_module\n", "the client: ModuleNotFoundError: No module named 'no_such_module' (client.py:1"),
        ("def setup(url):\n    raise ValueError(url[:7])\n", "setup of the client: ValueError: http:// (client.py:2"),
        ("def setup(url): return 3\n", "it must return a function that sends a request; it returned int"),
        ("def setup(url):\n    async def request(): pass\n    return request\n", "request is async"),
        ("import sys\ndef setup(url): sys.exit(3)\n", "setup of the client: SystemExit: 3"),
    ],
)
def test_a_mistake_of_a_script_is_never_the_version_s_fault(tmp_path: Path, client: str, message: str) -> None:
    told = run(tmp_path, client=client)
    assert told.done["end"] == "infrastructure"
    assert message in told.done["message"]


def test_what_a_server_does_to_a_script_is_its_outcome(tmp_path: Path) -> None:
    dies = run(tmp_path / "a", "dies", client=SENDS)
    assert dies.done["end"] == "crash"
    assert "the process ended with exit code 3: the model is gone" in dies.done["message"]
    hangs = run(tmp_path / "b", "hangs", client=SENDS, timeout_s=0.3)
    assert hangs.done["end"] == "hang"
    assert "3 requests in a row failed: no reply within 0.3 s" in hangs.done["message"]
    gone = run(tmp_path / "c", "silent", client=SENDS, timeout_s=0.3)
    assert gone.done["end"] == "setup"


@pytest.mark.parametrize(
    ("prints", "numbers"),
    [
        ('print(\'warming up 3\')\nprint(\'{"p50": 0.25, "deep": {"rps": 400}}\')', {"p50": 0.25, "deep.rps": 400}),
        ("print('score: 0.75')", {"score": 0.75}),
        ("open('out.json', 'w').write('{\"p50\": 2}')", {"p50": 2}),
        ("print('p50: 3')\nopen('out.json', 'w').write('[{\"p50\": 2}]')", {"p50": 3}),
        ("open('out.json', 'w').write('{\"p50\": 2}\\n{\"p50\": 3, \"ttft\": [1, 2]}')", {"p50": 3}),
    ],
)
def test_the_numbers_of_a_load_generator_are_results(tmp_path: Path, prints: str, numbers: dict[str, float]) -> None:
    results = {"results": "out.json"} if "out.json" in prints else {}
    told = run(tmp_path, "closes", generator=f"{LOADS}{prints}\n", **results)
    assert (told.done["end"], told.done["message"]) == ("completed", "")
    assert told.done["run_s"] > 0
    assert {name: measured(told, name) for name in numbers} == {name: [value] for name, value in numbers.items()}
    assert measured(told, "step_s") == []


def test_a_load_generator_has_the_variables_of_the_image(tmp_path: Path) -> None:
    """Images of NVIDIA find their libraries by LD_LIBRARY_PATH."""
    variables = {"LD_LIBRARY_PATH": "/opt/a/lib", "PYTHONPATH": "/opt/b"}
    tells = f"import os\nprint('score:', sum(os.environ.get(name) == value for name, value in {variables}.items()))\n"
    told = run(tmp_path, generator=LOADS + tells, variables=variables)
    assert (told.done["end"], told.column("score")[-1]) == ("completed", 2)


def test_what_a_load_generator_leaves_behind_does_not_prolong_its_run(tmp_path: Path) -> None:
    leaves = "import subprocess\nprint('score: 1', flush=True)\nsubprocess.Popen(['sleep', '20'])\n"
    told = run(tmp_path, generator=LOADS + leaves)
    assert (told.done["end"], told.column("score")[-1]) == ("completed", 1)
    assert told.done["run_s"] < 15


def test_a_load_generator_that_fails_is_never_the_version_s_fault(tmp_path: Path) -> None:
    fails = run(tmp_path / "a", generator="raise SystemExit('no such option')")
    assert fails.done["end"] == "infrastructure"
    assert fails.done["message"] == "the load generator ended with exit code 1: no such option"
    unwritten = run(tmp_path / "b", generator="pass", results="out.json")
    assert unwritten.done["message"] == "results: out.json: was not written"
    empty = run(tmp_path / "d", generator="open('out.json', 'w').write('{}')", results="out.json")
    assert empty.done["message"] == "results: out.json: has no numbers outside of lists"
    dies = run(tmp_path / "c", "dies", generator=LOADS.replace("range(5)", "range(50)"))
    assert dies.done["end"] == "crash"
    assert "while the load generator ran: the process ended with exit code 3" in dies.done["message"]


def test_a_server_that_ends_late_has_not_reached_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load generator had ended long before."""
    pack_with(monkeypatch, tmp_path, "serving/__init__.py", "GRACE_S = 10.0", "GRACE_S = 3.0")
    told = run(tmp_path / "run", "ignores", generator=LOADS, limit_s=2.5)
    assert told.done["end"] == "completed"
    assert told.done["message"] == "the server did not end within 3 s of SIGTERM, and was killed"


def test_requests_come_from_a_file(tmp_path: Path) -> None:
    told = run(tmp_path, "fails", file="scenario/lines.jsonl", params={"size": "a"})
    assert told.done["end"] == "completed"
    assert "GET /a: HTTP 500" in told.done["message"]
    assert "POST /b: HTTP 500" in told.done["message"]
