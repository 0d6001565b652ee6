"""The pure parts of the engines: names, messages, owners, identities."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import psutil
import pytest
from docker.errors import APIError

from harness.model import Host, Scenario, Where
from harness.run import owners
from harness.run.docker.containers import Ulimits
from harness.run.docker.docker_client import ca_bundle, proxies
from harness.run.images.build_images import base_names, content_hash, context_files
from harness.run.images.find_images import progress
from harness.run.interruptible import BoundedTail
from harness.run.process.cgroups import TrialCgroup, own_limits
from harness.run.process.engine import ProcessEngine
from harness.run.process.environments import cache_folder, digest_of, is_version
from tests.dead import dead_owner

WHERE = Where(file="m.yaml", line=1, key="k")


def ticking() -> Iterator[int]:
    return count(0, 2)


def test_progress_sums_the_layers() -> None:
    clock = ticking()
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


def test_we_are_alive_and_others_are_not() -> None:
    ours = owners.this_process()
    assert owners.is_alive(ours) is True
    assert owners.is_alive(dead_owner()) is False
    assert owners.is_alive("other:1:1") is None
    assert owners.is_alive("nonsense") is None


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
    assert TrialCgroup(path=tmp_path).oom_killed() is bool(kills)


@pytest.mark.parametrize(("peak", "killed"), [(2048, False), (4096, True)])
def test_a_kill_below_the_own_limit_is_no_out_of_memory(tmp_path: Path, peak: int, killed: bool) -> None:
    """The kernel kills a trial first if other programs use up the machine's memory."""
    for name, content in {"max": "4096", "peak": str(peak), "events": "oom_kill 1"}.items():
        (tmp_path / f"memory.{name}").write_text(f"{content}\n")
    assert TrialCgroup(path=tmp_path).oom_killed() is killed


@pytest.mark.parametrize(("hits", "killed"), [(0, False), (3, True)])
def test_where_linux_tells_no_peak_the_requests_beyond_the_limit_are_counted(
    tmp_path: Path, hits: int, killed: bool
) -> None:
    (tmp_path / "memory.max").write_text("4096\n")
    (tmp_path / "memory.events").write_text(f"low 0\nmax {hits}\noom 1\noom_kill 1\n")
    assert TrialCgroup(path=tmp_path).oom_killed() is killed


def test_a_version_two_limit_leaves_no_swap(tmp_path: Path) -> None:
    (tmp_path / "memory.swap.max").write_text("max")
    TrialCgroup(path=tmp_path).limit(1 << 28)
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
    assert cache_folder({"HARNESS_CACHE": "/c"}) == Path("/c/environments")
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
