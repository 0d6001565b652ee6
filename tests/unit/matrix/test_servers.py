"""Servers in a matrix file: mistakes are reported with file, line and key, and the agent gets what the file says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.errors import MatrixError, UsageError
from harness.matrix import load_matrix
from harness.matrix.draft.job import job_of
from harness.matrix.draft.options import Typed, served_by
from harness.model import Variant
from harness.run.trial.payload import pack
from tests.unit.matrix.conftest import FakeIndex

HEAD = """version: 1
series:
  env: {install: ['numpy=={version}'], versions: ['2.1.3']}
hosts:
  here: {engine: process}
scenarios:
  a:
"""
BESIDE = {
    "bad.py": "def request(): pass\n",
    "none.py": "def setup(): pass\n",
    "size.py": "def setup(url, size): pass\n",
    "empty.jsonl": "\n",
    "bad.jsonl": '{"get": "/x"}\n\n{"json": 1}\n',
    "odd.jsonl": "hello\n",
    "key.jsonl": '{"verb": "/x"}\n',
}
PLAIN = 'serve: [server, "{port}"]\n'


def read(folder: Path, text: str, *, head: str = HEAD) -> str:
    """Return the problems of the matrix; "" if it is right."""
    path = folder / "m.yaml"
    for name, content in BESIDE.items():
        (folder / name).write_text(content)
    path.write_text(head + "".join(f"    {line}\n" for line in text.splitlines()))
    try:
        load_matrix(path, environ={}, index=FakeIndex(silent=True))
    except MatrixError as error:
        return str(error).replace(f"{folder}/", "")
    return ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PLAIN, "m.yaml:7: scenarios.a: needs the requests to send"),
        (PLAIN + "request: {}", "m.yaml:9: scenarios.a.request: give either get or post"),
        (PLAIN + "request: {get: x}", "scenarios.a.request.get: 'x' is not a path of a URL; write one such as /health"),
        (PLAIN + "request: [{get: /x, json: 1}]", "scenarios.a.request[0]: a GET request has no body; use post"),
        (PLAIN + "request: {post: /x, json: 1, body: a}", "scenarios.a.request: give either json or body, not both"),
        (
            PLAIN + "request: {get: /x, headers: {a: 'é'}}",
            "'a' is not a header's name, or its value is no plain text",
        ),
        (PLAIN + "request: {get: /x}\nready: {http: /a, line: b}", "scenarios.a.ready: give one of http and line"),
        (PLAIN + "request: {get: /x}\nparams: {concurrency: 0}", "0 is not a number of requests; write 1 to 1024"),
        (PLAIN + "request: {get: /x}\nparams: {rate: fast}", "'fast' is not a rate; write 20/s"),
        (PLAIN + "request: {get: /x}\nparams: {rate: 2, concurrency: 2}", "give one of them"),
        (PLAIN + "request: {get: /x}\nparams: {size: 2}", "serve and request have no '{size}'"),
        (PLAIN + "request: {get: /x}\njudge: exit", "is for a command; the requests are its steps"),
        (PLAIN + "request: {get: /x}\nprinted: off", "the replies of a server are read"),
        (PLAIN + "request: {get: /x}\ncommand: [x]", "give exactly one of script, program, module, command and serve"),
        ("serve: [server]\nrequest: {get: /x}", "say on which port it listens"),
        ("serve: [server]\nport: 80\nrequest: {get: /x}", "servers on here share its ports"),
        ("serve: [python, server.py, '{port}']\nrequest: {get: /x}", "scenarios.a.serve: 'server.py' is not in this"),
        ("command: [x]\nrequest: {get: /x}", "scenarios.a.request: is for a server"),
        (PLAIN + "client: no.py", "m.yaml:9: scenarios.a.client: 'no.py' does not exist"),
        (PLAIN + "client: bad.py", "m.yaml:9: scenarios.a.client: no setup(url) in bad.py; a scenario must define it"),
        (PLAIN + "client: none.py", "scenarios.a.client: setup in none.py takes nothing"),
        (PLAIN + "client: size.py", "scenarios.a.client: setup in size.py needs 'size', which params does not contain"),
        (PLAIN + "client: size.py\nrequest: {get: /x}", "scenarios.a.client: sends requests, as request does"),
        (PLAIN + "client: [wrk]", "m.yaml:9: scenarios.a.client: does not say where the server is: write {url}"),
        (PLAIN + "client: [wrk, '{url}']\nparams: {n: 2}", "serve and client have no '{n}'"),
        (PLAIN + "client: []", "scenarios.a.client: is empty; give at least one"),
        (PLAIN + "client: size.py\nresults: out.json\nparams: {size: 1}", "scenarios.a.results: is for a command or"),
        (PLAIN + "requests: no.jsonl", "m.yaml:9: scenarios.a.requests: 'no.jsonl' does not exist"),
        (PLAIN + "requests: empty.jsonl", "scenarios.a.requests: empty.jsonl must have 1 to 100,000 lines"),
        (PLAIN + "requests: bad.jsonl", "scenarios.a.requests: bad.jsonl:3: give either get or post"),
        (PLAIN + "requests: odd.jsonl", "scenarios.a.requests: odd.jsonl:1: is not JSON"),
        (PLAIN + "requests: key.jsonl", "scenarios.a.requests: key.jsonl:1: verb"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in read(tmp_path, text)


@pytest.mark.parametrize(
    ("host", "more", "problem"),
    [
        ("engine: slurm", "", ""),
        ("engine: slurm, nodes_per_trial: 2", "", "m.yaml:8: scenarios.a.serve: a server runs on one node, but a"),
        ("engine: slurm, container: enroot", "", "a container on here has no address of its own without a network"),
        ("engine: slurm, container: enroot", "network: true", ""),
        ("engine: slurm, container: pyxis", "", ""),
    ],
)
def test_a_server_runs_on_a_node_that_can_reach_it(tmp_path: Path, host: str, more: str, problem: str) -> None:
    head = HEAD.replace("{engine: process}", f"{{{host}}}")
    head = (
        head.replace("env: {install: ['numpy=={version}'], versions: ['2.1.3']}", SERIES)
        if "container" in host
        else head
    )
    assert problem in read(tmp_path, PLAIN + "request: {get: /x}\n" + more, head=head)
    assert problem or not read(tmp_path, PLAIN + "request: {get: /x}\n" + more, head=head)


SERIES = "env: {images: ['example.com/a@sha256:" + 64 * "1" + "']}"


def test_the_agent_gets_the_requests_with_their_params(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        HEAD + '    serve: [server, "{port}", "{size}"]\n'
        "    ready: {http: /ok, timeout: 1m}\n"
        "    request: [{post: '/{size}', json: {n: '{size}'}, weight: 3}, {get: /x, expect: {json: {a.0: 1}}}]\n"
        "    params: {size: [small], rate: [20/s]}\n"
    )
    (scenario,) = load_matrix(path, environ={}, index=FakeIndex(silent=True)).scenarios
    job = pack(Variant(scenario=scenario, params=(("size", "small"), ("rate", "20/s")))).job
    post, get = job["serve"]["requests"]
    assert (post["method"], post["path"], post["body"], post["weight"]) == ("POST", "/small", '{"n": "small"}', 3)
    assert post["headers"] == {"Content-Type": "application/json"}
    assert (get["method"], get["path"], get["body"], get["expect"]["json"]) == ("GET", "/x", None, {"a.0": 1})
    assert (job["serve"]["concurrency"], job["serve"]["rate"]) == (1, 20.0)
    assert job["serve"]["ready"] == {"http": "/ok", "line": None}
    assert job["serve"]["ready_timeout_s"] == 60.0
    assert job["command"] == ["server", "{port}", "small"]


def test_the_agent_gets_what_the_user_s_own_client_needs(tmp_path: Path) -> None:
    for name in ("client.py", "lines.jsonl"):
        (tmp_path / name).write_text('{"get": "/x"}\n' if name.endswith("l") else "def setup(url): pass\n")
    path = tmp_path / "m.yaml"
    kinds = (
        "client: client.py",
        "requests: lines.jsonl",
        "client: [wrk, '{n}', '{url}']\n    metrics: {p: {rise: 5%}}",
    )
    jobs = []
    for kind in kinds:
        path.write_text(HEAD + f"    {PLAIN}    {kind}\n" + ("    params: {n: [2]}\n" if "wrk" in kind else ""))
        (scenario,) = load_matrix(path, environ={}, index=FakeIndex(silent=True)).scenarios
        packed = pack(Variant(scenario=scenario, params=(("n", 2),) if "wrk" in kind else ()))
        jobs.append((packed.job["serve"], packed.files))
    (script, script_files), (lines, lines_files), (command, _) = jobs
    assert script["script"] == "scenario/client.py"
    assert b"setup" in script_files["scenario/client.py"]  # type: ignore[operator]
    assert lines["file"] == "scenario/lines.jsonl"
    assert lines["file"] in lines_files
    assert (command["generator"], command["wanted"]) == (["wrk", "2", "{url}"], ["p"])


def test_rate_and_concurrency_of_a_load_generator_are_its_own(tmp_path: Path) -> None:
    """The check of the matrix leaves them alone, and then the launch must not refuse them."""
    path = tmp_path / "m.yaml"
    path.write_text(
        HEAD + f"    {PLAIN}    client: [wrk, '-R{{rate}}', '-c{{concurrency}}', '{{url}}']\n"
        "    params: {rate: [200000], concurrency: [few]}\n"
    )
    (scenario,) = load_matrix(path, environ={}, index=FakeIndex(silent=True)).scenarios
    job = pack(Variant(scenario=scenario, params=(("rate", 200000), ("concurrency", "few")))).job
    assert job["serve"]["generator"] == ["wrk", "-R200000", "-cfew", "{url}"]


def typed(**options: str | int) -> Mapping[str, Any] | None:
    return served_by(["server", "{port}"], True, Path(), **options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "--serve: give one of --get, --post, --requests, --client, such as --get /health"),
        ({"get": "/x", "client": "wrk {url}"}, "--serve: give one of --get, --post, --requests, --client"),
        ({"get": "/x", "body": "1"}, "--body: is the body of a POST request; give --post PATH"),
        ({"get": "/x", "rate": "fast"}, "--rate: 'fast' is not a rate; write 20/s"),
        ({"get": "/x", "rate": "2/s", "concurrency": 2}, "--rate: says when requests begin, as --concurrency does"),
        ({"client": "wrk {url}", "rate": "2/s"}, "--rate: is not for a load generator, which has options of its own"),
        ({"client": "wrk '{url}"}, "--client wrk '{url}: No closing quotation"),
        ({"client": "no.py"}, "--client no.py: no such file; name a script with setup(url)"),
        ({"requests": "no.jsonl"}, "--requests no.jsonl: no such file; name one of JSON lines"),
    ],
)
def test_a_wrong_option_of_a_server_is_told_before_anything_starts(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        typed(**options)
    with pytest.raises(UsageError, match="is for a server; add --serve"):
        served_by(["server", "{port}"], False, Path(), **(options or {"port": 80}))


@pytest.mark.parametrize(
    ("options", "key", "carried"),
    [
        ({"client": "own/client.py", "concurrency": 2}, "client", ("scenario/own/client.py", "scenario/own/helper.py")),
        ({"requests": "lines.jsonl", "rate": "20/s"}, "requests", ("scenario/lines.jsonl",)),
        ({"client": "wrk -s load.lua {url}"}, "generator", ("scenario/load.lua",)),
    ],
)
def test_what_try_is_told_of_the_client_reaches_the_launch_with_its_files(
    tmp_path: Path, options: dict[str, Any], key: str, carried: tuple[str, ...]
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "client.py").write_text("import helper\ndef setup(url): pass\n")
    for name, text in {"own/helper.py": "", "lines.jsonl": '{"get": "/x"}\n', "load.lua": ""}.items():
        (tmp_path / name).write_text(text)
    command = ["server", "{port}"]
    job = job_of(Typed(folder=tmp_path, command=command, served=served_by(command, True, tmp_path, **options)))
    path = tmp_path / "m.yaml"
    path.write_text(HEAD + "".join(f"    {name}: {json.dumps(value)}\n" for name, value in job.entry.items()))
    (scenario,) = load_matrix(path, environ={}, index=FakeIndex(silent=True)).scenarios
    packed = pack(Variant(scenario=scenario, params=tuple((name, each) for name, (each,) in scenario.params)))
    assert bool(scenario.generator if key == "generator" else getattr(scenario, key))
    assert [place for place in carried if place not in packed.files] == []
    load = (packed.job["serve"]["concurrency"], packed.job["serve"]["rate"])
    assert load == (options.get("concurrency", 1), 20.0 if "rate" in options else None)
    assert job.is_command == (key == "generator")
