"""The pure parts of the engines: names, messages, owners, identities."""

from __future__ import annotations

import os
import resource
import secrets
import subprocess
import time
from dataclasses import replace
from datetime import datetime, timezone
from email.utils import format_datetime
from itertools import count
from pathlib import Path
from unittest.mock import MagicMock

import psutil
import pytest
import requests
from docker.errors import APIError

from harness.errors import InfrastructureError
from harness.model import Host, Scenario, Where
from harness.run import owners
from harness.run.docker import containers
from harness.run.docker.containers import NAME_LABEL, OWNER_LABEL, GpuAccess, Ulimits, Ways
from harness.run.docker.docker_client import ca_bundle, engine_errors, proxies
from harness.run.images import build_errors, find_images
from harness.run.images.build_images import Stages, base_names, content_hash, context_files
from harness.run.images.find_images import progress
from harness.run.images.held_container import _failure
from harness.run.interruptible import BoundedTail, NetworkTrouble
from harness.run.process import cgroups
from harness.run.process.cgroups import oom_killed, own_limits
from harness.run.process.engine import ProcessEngine
from harness.run.process.environments import cache_folder, digest_of, is_version
from tests.dead import dead_owner

WHERE = Where(file="m.yaml", line=1, key="k")


def test_progress_sums_the_layers() -> None:
    clock = count(0, 2)
    events = [
        {"status": "Pulling from library/x", "id": "latest"},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 10 << 20, "total": 30 << 20}},
        {"status": "Downloading", "id": "b", "progressDetail": {"current": 5 << 20, "total": 70 << 20}},
        {"status": "Download complete", "id": "a", "progressDetail": {}},
    ]
    assert list(progress(events, clock_s=lambda: float(next(clock)))) == [
        "pulling", "pulling 10/30 MiB", "pulling 15/100 MiB", "pulling 35/100 MiB",
    ]  # fmt: skip


def test_progress_ends_with_the_engines_error() -> None:
    with pytest.raises(APIError, match="no space left"):
        list(progress([{"error": "no space left on device"}, {"status": "x"}], clock_s=lambda: 0.0))


def test_bases_are_named_with_their_args() -> None:
    text = "ARG TAG=20.12\nFROM --platform=linux/amd64 repo/x:${TAG} AS a\n# FROM none\nfrom repo/y:$OTHER\n"
    assert base_names(text, {"OTHER": "2"}) == ["repo/x:20.12", "repo/y:2"]
    assert base_names(text, {"TAG": "22.12", "OTHER": "2"})[0] == "repo/x:22.12"


def test_what_is_ignored_does_not_change_a_context(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM x")
    (tmp_path / ".dockerignore").write_text("# none\nlogs\n")
    (tmp_path / "logs").mkdir()

    def hashed() -> str:
        return content_hash(tmp_path, context_files(tmp_path), args={}, bases=[])

    first = hashed()
    (tmp_path / "logs" / "new").write_text("x")
    assert hashed() == first
    (tmp_path / "used").write_text("x")
    assert hashed() != first


def test_only_a_default_ulimit_is_left_out() -> None:
    plain = Scenario(name="x", where=WHERE)
    asked = replace(plain, ulimits=(("memlock", 1 << 30, 1 << 30),))
    for refused in (
        f"error setting rlimit type {resource.RLIMIT_MEMLOCK}: operation not permitted",
        "crun: setrlimit `RLIMIT_MEMLOCK`: Operation not permitted: OCI permission denied",
    ):
        ulimits = Ulimits()
        assert "memlock" in {name for name, *_ in ulimits.of(plain)}
        assert not ulimits.learn(refused, asked)
        assert ulimits.learn(refused, plain)
        assert "memlock" not in {name for name, *_ in ulimits.of(plain)}
        assert not ulimits.learn(refused, plain), "it was left out already"
    refused = "crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted: OCI permission denied"
    assert not Ulimits().learn(refused, plain), "it is none of ours"
    assert not Ulimits().learn("no space left", plain)


def test_what_a_connection_learns_of_an_engine_the_others_know() -> None:
    """Each lane of a sweep started a container in vain."""
    plain, engine = Scenario(name="x", where=WHERE), secrets.token_hex(4)
    first, second, third, other = (Ulimits(each) for each in (engine, engine, engine, f"not {engine}"))
    assert first.of(plain) == second.of(plain) == plain.ulimits
    refused = f"error setting rlimit type {resource.RLIMIT_MEMLOCK}: operation not permitted"
    assert first.learn(refused, plain)
    assert second.learn(refused, plain), "it asked before the first one had learned"
    assert "memlock" not in {name for name, *_ in third.of(plain)}
    assert other.of(plain) == plain.ulimits


def test_an_engine_without_docker_init_starts_trials_without_it() -> None:
    """Every trial there was `infrastructure`."""
    plain, ways = Scenario(name="x", where=WHERE), Ways(gpus=GpuAccess({}))
    lacks = 'exec: "docker-init": executable file not found in $PATH: unknown'
    assert not ways.refused('exec: "tini": executable file not found in $PATH', plain), "the image's own"
    assert ways.init
    assert ways.refused(lacks, plain)
    assert not ways.init
    assert not ways.refused(lacks, plain)


@pytest.mark.parametrize(
    ("state", "finished_s", "dead"),
    [("exited", 700, True), ("exited", 30, False), ("created", None, True), ("running", None, False)],
)
def test_a_container_of_another_machine_counts_as_left_by_the_time_since_its_end(
    monkeypatch: pytest.MonkeyPatch, state: str, finished_s: float | None, dead: bool
) -> None:
    """It was the time since it was made, by the clock of this machine: a trial that had just ended was removed."""
    now_s = 1_900_000_000
    ended = "0001-01-01T00:00:00Z"
    if finished_s is not None:
        ended = datetime.fromtimestamp(now_s - finished_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.123456789Z")
    entry = {
        "Id": "1", "Names": ["/harness-x"], "State": state, "Created": now_s - 5000,
        "Labels": {OWNER_LABEL: "another:1:1", NAME_LABEL: "harness-x"},
    }  # fmt: skip
    client = MagicMock()
    client.api.containers.return_value = [entry]
    client.api.inspect_container.return_value = {"State": {"FinishedAt": ended}}
    client.api.get.return_value.headers = {"Date": format_datetime(datetime.fromtimestamp(now_s, timezone.utc))}
    assert bool(containers.ours(client, dead=True)) is dead


def test_we_are_alive_and_others_are_not() -> None:
    ours = owners.this_process()
    assert owners.is_alive(ours) is True
    assert owners.is_alive(dead_owner()) is False
    assert owners.is_alive("other:1:1") is None
    assert owners.is_alive("nonsense") is None


@pytest.mark.parametrize("hides", ["all", "content"])
def test_an_owner_that_proc_hides_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hides: str) -> None:
    """With `hidepid`, /proc hides the harness of another user, whose lease and trials were then taken."""
    monkeypatch.setattr(owners, "_machine", lambda: "this")
    monkeypatch.setattr(owners, "PROC", tmp_path)
    if hides == "content":
        (tmp_path / "1" / "stat").mkdir(parents=True)  # cannot be read, not even by root
    assert owners.is_alive("this:1:5") is None
    assert not owners.is_dead(f"{owners.PREFIX}this_1_5_abcd")
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert owners.is_alive(f"this:{ended.pid}:5") is False


@pytest.mark.skipif(not psutil.LINUX, reason="elsewhere the start of a process is known by the clock alone")
def test_an_owner_lives_on_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sweep on the machine took it for dead, and removed its running trials."""
    ours = owners.this_process()
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: time.time() - 86_400)
    assert owners.is_alive(ours) is True
    assert owners.this_process() == ours


@pytest.mark.parametrize("kills", [0, 1])
def test_the_kernels_word_for_an_oom_kill(tmp_path: Path, kills: int) -> None:
    (tmp_path / "memory.events").write_text(f"low 0\noom 1\noom_kill {kills}\n")
    assert oom_killed(tmp_path) is bool(kills)


@pytest.mark.parametrize(("peak", "killed"), [(2048, False), (4096, True)])
def test_a_kill_below_the_own_limit_is_no_out_of_memory(tmp_path: Path, peak: int, killed: bool) -> None:
    """The kernel kills a trial first if other programs use up the machine's memory."""
    for name, content in {"max": "4096", "peak": str(peak), "events": "oom_kill 1"}.items():
        (tmp_path / f"memory.{name}").write_text(f"{content}\n")
    assert oom_killed(tmp_path) is killed


@pytest.mark.parametrize(("hits", "killed"), [(0, False), (3, True)])
def test_where_linux_tells_no_peak_the_requests_beyond_the_limit_are_counted(
    tmp_path: Path, hits: int, killed: bool
) -> None:
    (tmp_path / "memory.max").write_text("4096\n")
    (tmp_path / "memory.events").write_text(f"low 0\nmax {hits}\noom 1\noom_kill 1\n")
    assert oom_killed(tmp_path) is killed


def test_a_version_two_limit_leaves_no_swap(tmp_path: Path) -> None:
    (tmp_path / "memory.swap.max").write_text("max")
    cgroups.limit(tmp_path, 1 << 28)
    assert (tmp_path / "memory.max").read_text() == str(1 << 28)
    assert (tmp_path / "memory.swap.max").read_text() == "0"


def test_identity_of_an_environment_is_its_content(tmp_path: Path) -> None:
    """The folder's own path in scripts, and compiled files, do not count; a changed file does."""
    info = tmp_path / "lib/python3.11/site-packages/x-1.dist-info"
    info.mkdir(parents=True)
    record = info / "RECORD"
    record.write_text("x.py,sha256=a,1\n../../../bin/x,sha256=path,1\nx-1.dist-info/RECORD,,\n")
    first = digest_of(tmp_path, build="3.11.7")
    record.write_text("__pycache__/x.pyc,,\nx.py,sha256=a,1\n../../../bin/x,sha256=other,1\n")
    assert digest_of(tmp_path, build="3.11.7") == first
    assert digest_of(tmp_path, build="3.11.8") != first
    record.write_text("x.py,sha256=b,1\n")
    assert digest_of(tmp_path, build="3.11.7") != first


def test_settings_of_the_environment(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("PEM")
    assert ca_bundle({"REQUESTS_CA_BUNDLE": str(bundle)}) == "PEM"
    assert ca_bundle({"SSL_CERT_FILE": str(tmp_path)}) == ""
    assert ca_bundle({}) == ""
    assert proxies({"HTTPS_PROXY": "http://p:1", "HOME": "/"}) == {"HTTPS_PROXY": "http://p:1"}
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/harness/environments")
    assert is_version("3.1.0", "3.1")
    assert not is_version("3.11.0", "3.1")


def test_a_tail_is_bounded_and_is_the_end() -> None:
    tail = BoundedTail(limit_bytes=10)
    for piece in (b"a" * 25, b"bcd", os.linesep.encode()):
        tail.add(piece)
    assert tail.text() == "aaaaaabcd\n"


def test_a_process_host_has_the_memory_of_the_container_that_it_is(tmp_path: Path) -> None:
    """Launches that fit into the machine together were killed in a container with less memory than both took."""
    if not any(line.startswith("0::") for line in Path("/proc/self/cgroup").read_text().splitlines()):
        pytest.skip("this machine has no cgroups of version 2")
    assert own_limits(root=tmp_path) == []
    (tmp_path / "cgroup.procs").touch()
    for limit, found in (("max", psutil.virtual_memory().total), (str(1 << 20), 1 << 20)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        engine = ProcessEngine(
            Host(name="here", engine="process", gpus="none", where=WHERE), environ={}, cgroup_root=tmp_path
        )
        assert engine.facts["memory_bytes"] == found


# ---------------------------------------------------------------- why something could not be made


GONE = "No matching distribution found for orjson==3.9.15"
NO_VERSION = f"""\
ERROR: Could not find a version that satisfies the requirement orjson==3.9.15 (from versions: none)
ERROR: {GONE}"""
RETRYING = "WARNING: Retrying (Retry(total=0)) after connection broken by "
ABORTED = f"{RETRYING}'ProtocolError('aborted')': /simple/orjson/"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", ""),
        ("all is well\nno nvcc here\n ---> Removed 55867c85b451", "no nvcc here"),
        ("\x1b[91mE: no package x\x1b[0m", "E: no package x"),
        (
            f"Step 4/4 : RUN pip install orjson\n{NO_VERSION}\n[notice] A new release of pip is available\n\n"
            "Removing intermediate container 55867c85b451",
            GONE,
        ),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated it\n"
            "    idna==3.7 from file:///w/idna-3.7-py3-none-any.whl:\n"
            "        Expected sha256 0000\n"
            "             Got        82fe",
            "wrong hash: idna==3.7 from file:///w/idna-3.7-py3-none-any.whl: Expected sha256 0000 Got        82fe",
        ),
        (  # behind a company's proxy, pip ends with "no such version", and users look for another version
            f"{RETRYING}'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify"
            f" failed'))': /simple/orjson/\n{NO_VERSION}",
            f"the package index cannot be reached (CERTIFICATE_VERIFY_FAILED): {GONE}",
        ),
        (
            f"{ABORTED}\n{NO_VERSION}",
            f"the package index cannot be reached ('ProtocolError('aborted')': /simple/orjson/): {GONE}",
        ),
        (  # `Could not build wheels` alone does not say that there is no compiler
            "  error: command 'gcc' failed: No such file or directory\n  [end of output]\n"
            "  ERROR: Failed building wheel for ujson\nFailed to build ujson\nERROR: Could not build wheels for ujson",
            "error: command 'gcc' failed: No such file or directory: Could not build wheels for ujson",
        ),
    ],
)
def test_the_reason_of_a_failure_is_its_last_complaint_with_its_cause(output: str, reason: str) -> None:
    assert build_errors.complaint(build_errors.readable(output).splitlines()).text == reason


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("", "uv failed without a message"),
        (
            "error: No solution found when resolving dependencies\n  cause: Because x was not found\n",
            "Because x was not found",
        ),
        ("  × No solution found when resolving dependencies:\n  ╰─▶ Because x\n      is gone", "Because x is gone"),
        (
            "error: The build backend returned an error\n"
            "  cause: Call to `setuptools.build_meta` failed (exit status: 1)\n\n"
            "         [stdout]\n         some output\n\n"
            "         [stderr]\n         Traceback (most recent call last):\n"
            '           File "<string>", line 3, in <module>\n         RuntimeError: nvcc is needed\n\n'
            "hint: see the documentation\n",
            "RuntimeError: nvcc is needed: The build backend returned an error "
            "Call to `setuptools.build_meta` failed (exit status: 1)",
        ),
        (
            "  × Failed to download `six==1.16.0`\n  ╰─▶ Hash mismatch for `six==1.16.0`\n\n      Expected:\n"
            "        sha256:0000\n\n      Computed:\n        sha256:8abb\n",
            "the file of six==1.16.0 does not match its --hash; if you trust the file, write --hash=sha256:8abb",
        ),
    ],
)
def test_uv_s_reason_is_one_line_and_that_of_a_build_comes_first(stderr: str, reason: str) -> None:
    assert build_errors.of_uv(stderr) == reason
    is_built = "build backend" in reason
    assert ("--python" in build_errors.if_other_python(reason)) is is_built, "a wheel of another Python needs no build"


def test_an_index_that_cannot_be_reached_is_worth_another_try() -> None:
    assert isinstance(_failure("here", f"{ABORTED}\n{NO_VERSION}", {}), NetworkTrouble)
    assert not isinstance(_failure("here", NO_VERSION, {}), NetworkTrouble)


def test_an_install_that_fills_the_disk_says_what_to_do() -> None:
    why = "Could not install packages: [Errno 28] No space left on device"
    assert str(_failure("here", f"ERROR: {why}\n", {})).startswith(f"here: {why}; free some space on that")


def test_a_folder_of_this_machine_that_a_container_does_not_see_is_told() -> None:
    """The doctor and the plan knew the version, and pip said that it does not exist."""
    told = str(_failure("here", NO_VERSION, {"PIP_FIND_LINKS": "/wheels", "UV_INDEX_URL": ""}))
    assert told.startswith(f"here: {GONE}; a container does not get PIP_FIND_LINKS of this machine: use a base")
    assert str(_failure("here", NO_VERSION, {})).startswith(f"here: {GONE}; if it has a wheel for another Python")
    assert "PIP_FIND_LINKS" not in str(_failure("here", "ERROR: gcc: not found\n", {"PIP_FIND_LINKS": "/wheels"}))


# ---------------------------------------------------------------- which images a build made


SAID = """\
Step 1/7 : FROM base AS early
 ---> 427013fe3c07
Step 2/7 : ARG V
 ---> Using cache
 ---> d7c63c61f6b4
Step 3/7 : RUN make
 ---> Running in 785886f2573d
made
Removing intermediate container 785886f2573d
 ---> 8e26d1037053
Step 4/7 : FROM early
 ---> 8e26d1037053
Step 5/7 : COPY --from=early /a /
 ---> 7441d5e27d40
Step 6/7 : run echo from here
 ---> Running in 3f8094976b4f
Removing intermediate container 3f8094976b4f
 ---> 9b748c374279
Successfully built 9b748c374279
"""


PODMAN_SAID = """\
[1/2] STEP 1/3: FROM base AS early
[1/2] STEP 2/3: ENV A=1
--> Using cache 0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b
--> 0a1b2c3d4e5f
[1/2] STEP 3/3: RUN make
made
--> 78350c956e9d
[2/2] STEP 1/2: FROM base
[2/2] STEP 2/2: COPY --from=early /a /
[2/2] COMMIT docker.io/harness/build:1
--> b135452d820f
Successfully tagged docker.io/harness/build:1
"""


def heard(text: str) -> list[str]:
    stages = Stages()
    for line in text.splitlines(keepends=True):
        stages.hear(line)
    return stages.made


def test_bases_and_cached_steps_were_there_before() -> None:
    assert heard(SAID) == ["8e26d1037053", "7441d5e27d40", "9b748c374279"]


def test_podmans_builder_has_other_words() -> None:
    assert heard(PODMAN_SAID) == ["78350c956e9d", "b135452d820f"]
    assert heard("STEP 1/2: FROM base\nSTEP 2/2: RUN make\n--> 8e26d1037053\n") == ["8e26d1037053"]


def test_other_builders_are_not_understood_and_lose_nothing() -> None:
    assert heard("#1 [1/2] FROM base\n#2 [2/2] RUN make\n#2 -> 8e26d1037053\n") == []


def test_an_engine_that_cannot_say_whether_data_is_there_is_an_error() -> None:
    """Podman that refused to look (403), or failed (500), was said to have no such data."""
    found, absent, refused, failed = (requests.Response() for _ in range(4))
    found.status_code, absent.status_code, refused.status_code, failed.status_code = 200, 404, 403, 500
    refused.reason = "Forbidden"
    assert containers.is_there(found)
    assert not containers.is_there(absent)
    with pytest.raises(InfrastructureError, match=r"refused: 403 .*Forbidden"), engine_errors("here"):
        containers.is_there(refused)
    with pytest.raises(APIError):
        containers.is_there(failed)


# ---------------------------------------------------------------- what cannot be pulled


@pytest.mark.parametrize(("status", "said", "is_refused"), [
    (403, "Request forbidden by administrative rules.", False), (403, "authorization denied by plugin opa", False),
    (403, "pull access denied for app, repository does not exist", True),
    (403, "errors: denied: requested access to the resource is denied", True), (404, "manifest unknown", True),
    (401, "log in", True), (500, "lookup hub: no such host", True), (500, "toomanyrequests: slow down", False),
])  # fmt: skip
def test_only_a_registry_can_refuse_an_image(status: int, said: str, *, is_refused: bool) -> None:
    """A proxy of the engine's socket that allows pulls, but not to ask for an image, was taken for the registry, and
    nothing was launched."""
    response = requests.Response()
    response.status_code = status
    client, states = MagicMock(), list[str]()
    client.api.inspect_distribution.side_effect = APIError("no", response=response, explanation=said)
    told = find_images.refused(client, "team/app:1", say=states.append)
    assert told.startswith(f"team/app:1: cannot be pulled: {said}; ") == is_refused
    assert bool(told) == is_refused
