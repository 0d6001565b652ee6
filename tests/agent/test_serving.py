"""Servers: a request is a step, and whatever a server answers is its own outcome, never the harness's error."""

import shutil
import socket
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent import driver
from tests.agent.driver import Told, pack_with

SERVER = Path(__file__).with_name("server.py")
POST = {"method": "POST", "path": "/generate", "headers": {}, "body": "{}", "weight": 1}


def run(root: Path, fault: str = "", *, python: str = sys.executable, own: str = "", **changed: Any) -> Told:
    job = {
        name: changed.pop(name) for name in ("looks", "look_times_s", "command", "enter", "client") if name in changed
    }
    serve = {
        "port": None, "ready": {"http": None, "line": None}, "ready_timeout_s": None, "requests": [POST],
        "concurrency": 1, "rate": None, "seed": 1, "timeout_s": 5.0, **changed,
    }  # fmt: skip
    command = job.pop("command", [python, "server.py", "{port}", *([fault] if fault else [])])
    files = {"server.py": SERVER.read_text(), **({"own.pem": own} if own else {})}
    return driver.run(root, python, None, files=files, command=command, serve=serve, **job)


def measured(told: Told, column: str) -> list[float]:
    return [value for value in told.column(column) if value is not None]


@pytest.mark.smoke
def test_each_request_is_a_step(tmp_path: Path, python: str) -> None:
    told = run(tmp_path, python=python, concurrency=3, ready={"http": "/", "line": None})

    assert (told.done["end"], told.done["message"], told.done["last_step"]) == ("completed", "", 100)
    assert told.one("ready")["step_kind"] == "request"
    assert told.one("ready")["setup_s"] > 0
    assert [(look["step"], look["last"]) for look in told.all("look")] == [(50, False), (100, True)]
    assert len(measured(told, "step_s")) == 100
    assert set(told.column("failed")) == {0}
    assert set(told.column("score")) == {42}
    assert all(value > 1000 for value in measured(told, "rss_kib"))
    assert 0 <= told.done["end_s"] < 5


def test_the_memory_is_the_server_s_and_not_the_client_s(tmp_path: Path) -> None:
    told = run(tmp_path, "leaks", looks=[200, 400])
    first, last = (look["look"]["rss_kib"] for look in told.all("look"))
    assert 1500 < last - first < 1900  # 200 requests keep 8 KiB each
    assert set(told.counts["processes"]) == {0}


def test_a_streamed_reply_has_a_first_token(tmp_path: Path) -> None:
    told = run(tmp_path, "streams")
    first_s, token_s, whole_s = (
        statistics.median(measured(told, name)) for name in ("first_token_s", "token_s", "step_s")
    )
    assert 0.002 <= first_s < whole_s - 2 * token_s
    assert token_s >= 0.002


def test_requests_of_an_open_loop_come_whatever_the_server_does(tmp_path: Path) -> None:
    """Each of them waits longer than the one before if the server is too slow: none is left out."""
    told = run(tmp_path, "streams", rate=2000.0, looks=[64, 128])
    assert told.done["end"] == "completed"
    assert len(measured(told, "step_s")) == 128


def test_failed_requests_are_counted_and_have_no_time(tmp_path: Path) -> None:
    told = run(tmp_path, "fails")
    assert told.done["end"] == "completed"
    assert told.done["message"] == "10 of 100 requests failed: HTTP 500 oops (10)"
    assert sum(measured(told, "failed")) == 10
    assert len(measured(told, "step_s")) == 90


def test_a_reply_that_is_not_the_expected_one_has_failed(tmp_path: Path) -> None:
    expected = {"status": None, "text": None, "json": {"score": 43}}
    told = run(tmp_path, requests=[{**POST, "expect": expected}])
    assert told.done["message"] == "before the first reply: no request succeeded: score in the reply is 42"


@pytest.mark.parametrize("fault", ["closes", "cgi", "untyped", "ipv6", "daemon"])
def test_what_servers_may_do_is_no_failure(tmp_path: Path, fault: str) -> None:
    told = run(tmp_path, fault)
    assert (told.done["end"], told.done["message"], told.done["last_step"]) == ("completed", "", 100)
    assert set(told.column("score")) == {42}


@pytest.mark.parametrize(
    ("fault", "end", "message"),
    [
        ("garbage", "setup", "no request succeeded: the reply is not HTTP: it begins with"),
        ("http2", "setup", "no request succeeded: the server speaks only HTTP/2, and this client HTTP/1.1; use"),
        ("redirects", "setup", "no request succeeded: HTTP 302 to /other"),
        ("half", "setup", "closed in the middle of the reply, after 3 bytes"),
        ("breaks", "crash", "after request 120: 100 requests in a row failed: HTTP 500 oops"),
        ("dies", "crash", "the process ended with exit code 3: the model is gone"),
        ("aborts", "crash", "after the last step: killed by SIGABRT"),
    ],
)
def test_what_a_server_does_wrong_is_its_outcome(tmp_path: Path, fault: str, end: str, message: str) -> None:
    told = run(tmp_path, fault, looks=[100, 200])
    assert told.done["end"] == end
    assert message in told.done["message"].splitlines()[0], "a finding told only how many requests had failed"


@pytest.mark.parametrize(("fault", "lacks"), [("hangs", "reply"), ("drips", "end of the reply")])
def test_a_server_that_stops_answering_hangs(tmp_path: Path, fault: str, lacks: str) -> None:
    """A reply in pieces without an end was waited for until the limit, and then told as none."""
    told = run(tmp_path, fault, timeout_s=0.3)
    assert told.done["end"] == "hang"
    assert told.done["message"] == f"after request 23: 3 requests in a row failed: no {lacks} within 0.3 s"


def test_a_server_that_stops_answering_hangs_although_the_time_of_its_steps_is_over(tmp_path: Path) -> None:
    """The request that had no reply did not count, as the time for steps is as short as that for a reply."""
    told = run(tmp_path, "hangs", timeout_s=0.3, look_times_s=[0.1, 0.2])
    assert told.done["end"] == "hang", told.done["message"]


def test_a_server_that_is_never_ready_is_told_from_one_on_another_port(tmp_path: Path) -> None:
    elsewhere = run(tmp_path / "a", "elsewhere", ready_timeout_s=4.0)
    assert elsewhere.done["end"] == "setup"
    assert "not ready within 4 s: it listens on 127.0.0.1:" in elsewhere.done["message"], "a table cut that off"
    silent = run(tmp_path / "b", "ignores", ready={"http": None, "line": "no such line"}, ready_timeout_s=1.0)
    assert "it printed no line with 'no such line'" in silent.done["message"]
    ended = run(tmp_path / "c", command=["sh", "-c", "echo no weights; exit 1"])
    assert ended.done["message"] == "before the first reply: the process ended with exit code 1: no weights"


def test_it_is_told_early_why_a_server_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was said of a port that was mistyped until the limit of ten minutes."""
    pack_with(monkeypatch, tmp_path, "supervisor/served.py", "LATE_S = 10.0", "LATE_S = 1.5")
    told = run(tmp_path / "run", "elsewhere", ready_timeout_s=8.0)
    (note,) = [message["note"] for message in told.all("progress") if "note" in message]
    assert note.startswith("the server was not ready within 1.5 s: it listens on ")


def test_a_server_that_ignores_sigterm_is_killed_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_with(monkeypatch, tmp_path, "serving/__init__.py", "GRACE_S = 10.0", "GRACE_S = 0.3")
    told = run(tmp_path / "run", "ignores")
    assert told.done["end"] == "completed"
    assert told.done["message"] == "the server did not end within 0.3 s of SIGTERM, and was killed"
    assert told.done["end_s"] >= 0.3


def test_a_port_in_use_is_never_the_version_s_fault(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = run(tmp_path, port=taken.getsockname()[1])
    assert told.done["end"] == "infrastructure"
    assert "is in use on this machine" in told.done["message"]


def test_a_low_limit_of_open_files_does_not_limit_the_client(tmp_path: Path) -> None:
    """The limit of a shell is often lower than a server's own, which Docker or systemd gives."""
    command = ["prlimit", "--nofile=1000:1000", sys.executable, "server.py", "{port}"]
    told = run(tmp_path, command=command, concurrency=80, enter=["prlimit", "--nofile=64:1000"])
    assert (told.done["end"], told.done["message"]) == ("completed", "")


def test_a_client_that_may_open_no_more_files_is_never_the_version_s_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_with(monkeypatch, tmp_path, "serving/choose_client.py", "_NOFILE, (most, most)", "_NOFILE, (16, 16)")
    told = run(tmp_path / "run", concurrency=20)
    assert told.done["end"] == "infrastructure"
    assert told.done["message"] == "this client may open no more connections: Too many open files"


def test_a_client_that_may_not_be_started_says_how_it_may(tmp_path: Path) -> None:
    """/tmp of a node is mounted with noexec on some clusters."""
    told = run(tmp_path, client=["{root}/scenario/server.py"])
    assert told.done["end"] == "infrastructure"
    assert "server.py: Permission denied; if that is mounted with noexec, mount it without" in told.done["message"]


def test_a_mistake_of_the_client_is_never_the_version_s_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack_with(monkeypatch, tmp_path, "serving/client.py", "reply = link.reply\n", "reply = link.gone\n")
    told = run(tmp_path / "run")
    assert told.done["end"] == "infrastructure"
    assert "the client failed" in told.done["message"]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A certificate that nobody has signed, with its key."""
    if not shutil.which("openssl"):
        pytest.skip("the program openssl is not installed")
    key, signed = (tmp_path_factory.mktemp("tls") / name for name in ("key", "signed"))
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x")
    made = ["openssl", "req", "-x509", *kind, "-keyout", key, "-out", signed]
    subprocess.run(made, check=True, capture_output=True)
    return key.read_text() + signed.read_text()


@pytest.mark.parametrize("fault", ["", "streams", "closes"])
def test_a_server_with_a_certificate_of_its_own_is_measured(tmp_path: Path, own: str, fault: str) -> None:
    told = run(tmp_path, fault, own=own, tls=True, concurrency=3, ready={"http": "/", "line": None})
    assert (told.done["end"], told.done["message"], told.done["last_step"]) == ("completed", "", 100)
    assert len(measured(told, "first_token_s")) == (100 if fault == "streams" else 0)


def test_tls_on_one_side_only_is_told(tmp_path: Path, own: str) -> None:
    without = run(tmp_path / "a", own=own)
    assert without.done["end"] == "setup"
    assert "write `tls: true`, or give --tls" in without.done["message"]
    alone = run(tmp_path / "b", "garbage", tls=True)
    assert alone.done["end"] == "setup"
    assert "the server does not speak TLS; leave out `tls: true`, or --tls" in alone.done["message"]


def test_a_server_that_takes_only_http_2_over_tls_is_told(tmp_path: Path, own: str) -> None:
    """It refuses the client in an alert, of which nothing was said but that the connection was closed."""
    command = "openssl s_server -quiet -accept {port} -cert own.pem -key own.pem -alpn h2"
    told = run(tmp_path, own=own, tls=True, command=command.split())
    assert told.done["end"] == "setup"
    assert "the server speaks only HTTP/2, and this client HTTP/1.1" in told.done["message"]
