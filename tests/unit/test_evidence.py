"""repro, issue and diff: from a run's directory alone, for readers who do not have the harness."""

from __future__ import annotations

import functools
import itertools
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.cli import run as main
from harness.errors import InfrastructureError, UsageError
from harness.facts import sections
from harness.flows.evidence import difference, issue, recipe
from harness.masking import WITHHELD
from harness.model import (
    SIGNALS,
    Build,
    Cache,
    CellVerdict,
    Effect,
    Expect,
    Finding,
    Install,
    Lane,
    Pull,
    Request,
    SignalVerdict,
    Variant,
    WhenReady,
)
from harness.model.answers import Container, EnvironmentDifference, InPlace, Machine, Section
from harness.model.measured import Facts
from harness.report.environment_diff import render, to_json
from harness.report.issue import bug_report as issue_report
from harness.report.issue.reproduction import for_strangers, python_file, shell
from harness.report.text import finding_words
from harness.store import lookup
from harness.store.inputs import script_text
from harness.store.lookup import find_cell, find_run, open_run
from harness.store.saved_run import StoredRun, read_result, read_run
from harness.store.trial_json import read_trial, trial_files, write_trial
from tests.players import build, stored_run
from tests.players.stored_run import opened, read_again, recipe_of
from tests.players.trials import facts_of

PROCESS = Lane(host=replace(build.HERE.host, name="venv", engine="process"))


def find_finding(run: StoredRun, words: list[str]) -> tuple[int, Finding]:
    return lookup.find_finding(run, words, tell=finding_words.line)


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    return opened(tmp_path)


def script_of(run: StoredRun, *words: str) -> str:
    return python_file(recipe(run, find_cell(run, words)))


def played(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as plain Python, in a folder that contains nothing else."""
    folder.mkdir()
    (folder / "repro.py").write_text(code)
    command = [sys.executable, "-I", "-u", "repro.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


# ---------------------------------------------------------------- naming things


def test_a_run_is_named_by_path_id_matrix_or_latest(tmp_path: Path) -> None:
    """The link `latest` stands for the run that it names, so that a printed command is right after another sweep."""
    path = stored_run.write(tmp_path)
    link = path.with_name("latest")
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)
    names = [str(path), path.name, "quickstart", "latest", str(link)]
    assert {find_run(name, out=tmp_path / "reports") for name in names} == {path}
    with pytest.raises(UsageError, match="20250301T120000Z-1a2b"):
        find_run("march", out=tmp_path / "reports")


def test_without_any_run_the_option_of_that_command_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`compare a b` did not say which of the two was missing."""
    out, path = str(tmp_path / "none"), stored_run.write(tmp_path)
    assert main(["report", "latest", "--in", out]) == 2
    assert main(["compare", str(path), "b", "--in", out]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"harness: latest: {out} holds no run; sweep first, or name another folder with --in",
        f"harness: b: no such directory, and {out} holds no run; sweep first, or name another folder with --in",
    ]


def test_an_interrupted_run_without_a_finding_is_not_said_to_have_found_no_change(run: StoredRun) -> None:
    stopped = replace(run, told=replace(run.told, verdict="interrupted", findings=()))
    with pytest.raises(UsageError, match="it was interrupted with 3 of 3 cells measured; run the same command again"):
        find_finding(stopped, ["1"])


def test_a_run_that_goes_on_or_was_killed_hides_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a sweep runs for hours, the result of the last one must still be readable."""
    path = stored_run.write(tmp_path)
    going = path.with_name("20250302T120000Z-3c4d")
    going.mkdir()
    (going / "plan.json").write_bytes((path / "plan.json").read_bytes())
    out = tmp_path / "reports"
    named = ["latest", "quickstart", str(out / "quickstart")]
    assert {find_run(name, out=out) for name in named} == {path}
    assert read_run(out / "quickstart").path == path
    for name in (going.name, str(going)):
        with pytest.raises(UsageError, match=r"result\.json: .*the run is still going on or was killed"):
            open_run(name, out=out)
    monkeypatch.chdir(tmp_path)
    (path / "result.json").rename(going / "result.json")
    assert find_run("latest", out=Path("reports")).name == going.name


def test_of_two_runs_of_one_second_the_one_that_was_printed_last_is_the_latest(tmp_path: Path) -> None:
    """`issue latest 1` wrote the bug report of the other run."""
    path = stored_run.write(tmp_path)
    other = path.with_name(path.name.replace("1a2b", "0000"))
    shutil.copytree(path, other)
    os.utime(path / "result.json", ns=(1, 1))
    out = tmp_path / "reports"
    assert {find_run(name, out=out) for name in ("latest", "quickstart", str(out / "quickstart"))} == {other}
    assert find_run(f"quickstart/{path.name}", out=out) == path, "as `harness runs` lists it"
    os.utime(other / "result.json", ns=(0, 0))
    assert {find_run(name, out=out) for name in ("latest", "quickstart", str(out / "quickstart"))} == {path}


def test_runs_are_named_alike_in_all_commands(tmp_path: Path) -> None:
    """A user who typed `issue latest 1` will type `compare latest` next."""
    path = stored_run.write(tmp_path)
    out = ["--in", str(tmp_path / "reports")]
    with pytest.raises(UsageError, match="a run on one host or card only"):
        CliRunner().invoke(cli, ["compare", "latest", *out], catch_exceptions=False)
    assert CliRunner().invoke(cli, ["frontier", "quickstart", *out], catch_exceptions=False).exit_code == 0
    assert (path / "frontier.svg").exists()


def test_a_cell_is_named_by_id_or_by_words_that_fit_no_other(run: StoredRun) -> None:
    cell = find_cell(run, ["6.3.0"])
    assert find_cell(run, [cell.id]) == find_cell(run, ["multidict 6.3.0 local keep=True"]) == cell
    with pytest.raises(UsageError, match="matches 3 cells") as several:
        find_cell(run, ["multidict"])
    assert cell.id in str(several.value)
    assert [find_cell(run, [number]) for number in "12"] == [cell, cell], "of a finding, and of what fixed it"
    with pytest.raises(UsageError, match="no such cell"):
        find_cell(run, ["7.0"])


def test_a_param_is_named_as_the_matrix_and_the_reports_write_it_and_is_no_version(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain = opened(tmp_path / "plain")
    assert {find_cell(plain, ["6.2.0", word]).image.version for word in ("keep=true", "keep=True", "true")} == {"6.2.0"}
    run = opened(tmp_path, params=(("keep", True), ("say", "6.3.0")))
    assert find_cell(run, ["6.3.0"]).image.version == "6.3.0"
    assert find_cell(run, ["6.2.0", "6.3.0"]).image.version == "6.2.0"


def test_a_param_of_several_lines_is_one_line_of_the_list(tmp_path: Path) -> None:
    run = opened(tmp_path, params=(("keep", True), ("say", "a\n\x1b[2Jb")))
    with pytest.raises(UsageError) as several:
        find_cell(run, ["multidict"])
    assert len(str(several.value).splitlines()) == 4
    assert "\x1b" not in str(several.value)


def test_a_finding_is_named_by_number_or_by_words(run: StoredRun) -> None:
    assert find_finding(run, ["2"]) == find_finding(run, ["first_fixed"]) == find_finding(run, ["6.3.0", "6.3.2"])
    with pytest.raises(UsageError, match="matches 2 findings"):
        find_finding(run, ["multidict"])
    with pytest.raises(UsageError, match=re.escape("1  multidict on local, grow keep=True: memory leak since ")):
        find_finding(run, ["3"])


# ---------------------------------------------------------------- repro


def test_the_reduced_script_steps_without_the_harness_or_its_files(run: StoredRun, tmp_path: Path) -> None:
    """Everything that the scenario needs is included; what the harness never ran is not."""
    code = script_of(run, "6.3.0").replace("steps=4000", "steps=400")
    done = played(code, tmp_path / "bare")
    assert done.returncode == 0, done.stderr
    assert "harness" not in code.lower().replace("the harness did", "")
    rate = re.search(r"RSS grew by (\S+) KiB/step", done.stdout)
    assert rate is not None
    assert float(rate[1]) == pytest.approx(8, abs=3)
    assert [path.name for path in (tmp_path / "bare").iterdir()] == ["repro.py"]


@pytest.mark.parametrize("hostile", ["$(touch x)", "`touch x`", "'; touch x; '", '"\n', "END_OF_SCRIPT\ntouch x", "\\"])
def test_a_param_starts_nothing(tmp_path: Path, hostile: str) -> None:
    """The shell script is run by a real shell with a docker that only prints its arguments."""
    run = opened(tmp_path, params=(("keep", False), ("say", hostile)), environment=(("A", hostile),))
    text = shell(recipe_of(run))
    bench = tmp_path / "bench"
    bench.mkdir()
    (bench / "docker").write_text(
        '#!/bin/sh\nprintf "%s\\0" "$@" >> arguments\n[ "$1" = run ] && cat > stdin\nexit 0\n'
    )
    (bench / "docker").chmod(0o755)
    subprocess.run(["sh", "-c", text], cwd=bench, env={"PATH": f"{bench}:/usr/bin:/bin"}, check=True, timeout=30)
    assert {path.name for path in bench.iterdir()} == {"docker", "arguments", "stdin"}
    assert f"A={hostile}" in (bench / "arguments").read_text().split("\0")
    assert f"{hostile!r}" in (bench / "stdin").read_text()


def test_a_script_asks_for_the_data_and_mounts_them_at_their_places(run: StoredRun, tmp_path: Path) -> None:
    """Paths of the machine that measured are not in it: the identity says which data are meant."""
    mounts = (("/in, 'it'", "files ab12 (2 files, 5 GiB)"), ("conf/d", "content cd34 (1 file, 3 B)"))
    text = shell(replace(recipe_of(run), mounts=mounts, withheld=("HF_TOKEN",)))
    assert "# Set DATA_1 to the path of the data that the launch saw as /in, 'it': files ab12 (2 files, 5 GiB)." in text
    (tmp_path / "docker").write_text('#!/bin/sh\nprintf "%s\\0" "$@" >> arguments\ncat >/dev/null\n')
    (tmp_path / "docker").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "DATA_1": "/srv/a b"}
    start = functools.partial(subprocess.run, ["sh", "-c", text], cwd=tmp_path, capture_output=True, text=True)
    refused = start(env=environ)
    assert refused.returncode != 0
    assert "DATA_2: set it to the path of the data: see above" in refused.stderr
    start(env={**environ, "DATA_2": "/srv/c"}, check=True)
    given = (tmp_path / "arguments").read_text().split("\0")
    assert """type=bind,source=/srv/a b,"target=/in, 'it'",readonly""" in given
    assert "type=bind,source=/srv/c,target=/data-of-the-run/conf/d,readonly" in given
    assert any("mkdir -p conf && ln -s /data-of-the-run/conf/d conf/d && cat > repro.py" in word for word in given)


def test_a_script_says_that_it_runs_twice_if_the_launch_had_a_warm_cache(run: StoredRun) -> None:
    recipe = recipe_of(run)
    mounts = (
        Cache(name="hub", at="/hub"),
        Cache(name="own", at="~/.cache/own"),
        Cache(name="x", at="/x", start="cold"),
    )
    cell = recipe.cell
    warm = replace(cell, variant=replace(cell.variant, scenario=replace(cell.variant.scenario, mounts=mounts)))
    text = shell(replace(recipe, result=replace(recipe.result, cell=warm)))
    assert "the launch began with what another one had left in /hub and ~/.cache/own." in text
    assert "--mount type=volume,source=repro-hub,target=/hub" in text
    assert "/x" not in text


def test_the_flags_are_what_the_engine_was_asked_for(run: StoredRun) -> None:
    made = recipe_of(run).run
    assert isinstance(made, Container)
    assert made.image == stored_run.IDS["6.3.0"]
    assert ("--memory", str(1 << 30)) in made.options
    assert ("--ulimit", "stack=67108864:67108864") in made.options
    assert not any(value.startswith("memlock") for _, *rest in made.options for value in rest), "the engine refused it"
    assert ("API_TOKEN", WITHHELD) in recipe_of(run).environment


def test_a_pulled_image_is_named_by_its_registry_digest(tmp_path: Path) -> None:
    made = recipe_of(opened(tmp_path, source=Pull(reference="host:5000/a/b:tag"))).run
    assert isinstance(made, Container)
    assert made.image == f"host:5000/a/b@sha256:{'d' * 64}"


def test_a_cell_of_processes_names_interpreter_and_all_packages(tmp_path: Path) -> None:
    run = opened(tmp_path, lane=PROCESS)
    made = recipe_of(run)
    packages = ("multidict==6.3.0", "pip==23.0.1", "six==1.16.0")
    assert made.run == Machine(python=stored_run.IDS["6.3.0"], version="3.11.2", packages=packages)
    assert made.environment == (("TF_FLAG", "1 $(touch x)"), ("API_TOKEN", WITHHELD))
    subprocess.run(["sh", "-n"], input=shell(recipe_of(run)), text=True, check=True)
    text = report_of(run, "1").markdown
    assert "python3.11 -m venv env\nenv/bin/python -m pip install --no-deps -- multidict==6.3.0" in text


def test_a_script_of_another_encoding_keeps_its_letters() -> None:
    assert script_text("# coding: latin-1\nname = 'é'\n".encode("latin-1")) == "# coding: utf-8\nname = 'é'\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_script_keeps_its_form_feeds_and_separators(run: StoredRun, tmp_path: Path, newline: str) -> None:
    """Python does not end lines there: a script with such a character was split in the middle of a string."""
    text = '"""Title"""\n\x0c\nSAID = "a\u2028b\x0cc\x85d"\nif __name__ == "__main__":\n    raise SystemExit(9)\n'
    text += "def setup(keep):\n    assert len(SAID) == 7, ascii(SAID)\n    return lambda: None\n"
    made = recipe_of(run)
    done = played(python_file(replace(made, script=text.replace("\n", newline), steps=3)), tmp_path / "bare")
    assert done.returncode == 0, done.stderr


def test_a_param_of_any_letters_is_printed_by_a_python_without_a_locale(tmp_path: Path) -> None:
    """Old images have no locale: the script would end with its own error before the first step."""
    run = opened(tmp_path, params=(("keep", False), ("say", "é \N{GRINNING FACE}")))
    (tmp_path / "repro.py").write_text(script_of(run, "6.3.0").replace("steps=4000", "steps=40"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "repro.py"], cwd=tmp_path, env={"PYTHONIOENCODING": "ascii"}, capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


SERVES = (Path(__file__).parents[1] / "agent" / "server.py").read_text()


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("", 0, ["[ready after", "[requests up to 4000: median ", " 0 failed, RSS "]),
        ("garbage", 0, ["1000 failed", "[1000 times BadStatusLine: "]),
        ("dies", 1, ["the model is gone", "[the server ended with 3]"]),
        ("ipv6", 0, [" 0 failed, RSS "]),
        ("hangs", 1, ["[time is up after 20 requests]"]),
    ],
)
def test_a_server_is_started_and_sent_its_requests(tmp_path: Path, fault: str, code: int, said: list[str]) -> None:
    words = (sys.executable, "-c", SERVES, "{port}", *([fault] if fault else []))
    request = (Request(get="/x", expect=Expect(json=(("score", 42),))),)
    run = opened(tmp_path, script=None, serve=words, request=request, ready=WhenReady(line="listening"),
                 timeout_s=3.0 if fault == "hangs" else 60.0)  # fmt: skip
    done = played(script_of(run, "6.3.0"), tmp_path / "bare")
    assert done.returncode == code, done.stderr
    assert [text for text in said if text not in done.stdout + done.stderr] == []


def test_a_request_that_takes_too_long_has_failed_in_the_script_too(tmp_path: Path) -> None:
    """The script waited for a reply in pieces without an end until its own limit."""
    words = (sys.executable, "-c", SERVES, "{port}", "drips")
    run = opened(tmp_path, script=None, serve=words, request=(Request(get="/x"),), ready=WhenReady(line="listening"),
                 request_timeout_s=0.3)  # fmt: skip
    done = played(script_of(run, "6.3.0").replace("steps=4000", "steps=24"), tmp_path / "bare")
    assert "times ValueError: no reply within 0.3 s]" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("openssl"), reason="the program openssl is not installed")
def test_a_server_that_speaks_tls_is_sent_its_requests(tmp_path: Path) -> None:
    makes = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -keyout own.pem -out crt"
    line = f'{makes} && cat crt >> own.pem && exec {sys.executable} -c "$0" $1'
    run = opened(tmp_path, script=None, serve=("sh", "-c", line, SERVES, "{port}"), request=(Request(get="/x"),),
                 ready=WhenReady(http="/"), tls=True)  # fmt: skip
    done = played(script_of(run, "6.3.0"), tmp_path / "bare")
    assert (done.returncode, "[requests up to 4000: median " in done.stdout, " 0 failed" in done.stdout) == (
        0,
        True,
        True,
    )


def test_a_server_is_sent_requests_by_the_user_s_own_client(tmp_path: Path) -> None:
    words = (sys.executable, "-c", SERVES, "{port}")
    loads = (sys.executable, "-c", "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read())")
    run = opened(tmp_path, script=None, serve=words, client=(*loads, "{url}/x"))
    done = played(script_of(run, "6.3.0"), tmp_path / "bare")
    assert done.returncode == 0, done.stderr
    assert '{"score": 42}' in done.stdout


TELLS = """
import sys, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked", self.path, flush=True)
        self.send_response(200), self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
CLIENT = """
import urllib.request
import helper
def setup(url, **params):
    return lambda: urllib.request.urlopen(f"{url}/{params['size']}/{helper.SIZE}").read()
"""


def test_a_server_is_sent_the_same_requests_again(tmp_path: Path) -> None:
    """Without the params, the bug report of a finding that depends on them shows nothing."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/client.py").write_text(CLIENT)
    (tmp_path / "lib/helper.py").write_text("SIZE = 7\n")
    (tmp_path / "lines.jsonl").write_text('\ufeff{"get": "/{size}", "weight": 3}\n{"get": "/other"}\n')
    serve: dict[str, Any] = {"script": None, "serve": (sys.executable, "-c", TELLS, "{port}"), "folder": tmp_path}
    kinds: list[dict[str, Any]] = [
        {"client": tmp_path / "lib/client.py", "files": (tmp_path / "lib/helper.py",)},
        {"requests": tmp_path / "lines.jsonl", "files": ()},
    ]
    asked = []
    for number, kind in enumerate(kinds):
        (tmp_path / str(number)).mkdir()
        run = opened(tmp_path / str(number), params=(("size", "small"),), **serve, **kind)
        text = script_of(run, "6.3.0").replace("steps=4000", "steps=400")
        done = played(text, tmp_path / f"bare {number}")
        assert done.returncode == 0, done.stderr
        asked.append(Counter(line for line in done.stdout.splitlines() if line.startswith("asked")))
    assert asked[0] == {"asked /small/7": 400}
    assert asked[1].keys() == {"asked /small", "asked /other"}
    assert 250 < asked[1]["asked /small"] < 350


def test_a_client_that_sends_nothing_repeats_nothing(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("def setup(url): raise ValueError(url)\n")
    words = (sys.executable, "-c", SERVES, "{port}")
    run = opened(tmp_path, script=None, serve=words, client=tmp_path / "client.py")
    done = played(script_of(run, "6.3.0"), tmp_path / "bare")
    assert (done.returncode, "[no request was sent]" in done.stderr) == (1, True)


def test_a_command_is_repeated_with_its_files(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "print('step 1'); import helper; print(helper.SIZE); raise SystemExit(3)")
    run = opened(tmp_path, script=None, command=command, step_pattern="^step")
    done = played(script_of(run, "6.3.0"), tmp_path / "bare")
    assert done.returncode == 3, done.stderr
    assert "[ended with 3 after 1 steps]" in done.stdout


def repeated(folder: Path, text: str, *words: str) -> str:
    """Return what the repro of a program prints."""
    (folder / "train.py").write_text(text)
    program = {"script": None, "program": folder / "train.py", "args": words, "steps_are": "torch"}
    done = played(script_of(opened(folder, **program), "6.3.0"), folder / "bare")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_is_repeated_without_steps_that_nobody_counts(tmp_path: Path) -> None:
    """It said "ended with 0 after 0 steps" about a training that had made thousands."""
    said = repeated(tmp_path, "import sys, time; print(sys.argv[1:]); time.sleep(1.2)", "--epochs", "1")
    assert "['--epochs', '1']\n" in said
    assert said.endswith("[ended with 0]\n")
    assert re.search(r"^\[RSS \d+ KiB\]$", said, re.MULTILINE)
    assert "step" not in said


def test_the_leak_of_a_program_that_ends_soon_is_seen(tmp_path: Path) -> None:
    """One sample per second showed nothing of a training that took 0.1 s, while the report on it claimed a leak."""
    grows = "import time\nkept = []\nfor _ in range(10):\n    kept.append(b'x' * (2 << 20)); time.sleep(0.05)"
    said = repeated(tmp_path, grows)
    seen = [int(kib) for kib in re.findall(r"^\[RSS (\d+) KiB\]$", said, re.MULTILINE)]
    assert max(seen) - min(seen) > 10 << 10, said  # the last look may coincide with the program's end


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (2000, "7.84 KiB/step adds up to 15.3 MiB in 2,000 steps: the resident memory that the script prints grows"),
        (20, "7.84 KiB/step adds up to 0.153 MiB in 20 steps: too little to show in the resident memory that the"),
    ],
)
def test_a_report_says_whether_its_script_can_show_the_leak(tmp_path: Path, steps: int, told: str) -> None:
    run = opened(tmp_path, script=None, command=("./train",))
    asked = recipe_of(run)
    verdict = build.told(replace(asked.result.verdict, verdicts=("leak",), steps=steps), "memory", value=7.84)
    asked = replace(asked, result=replace(asked.result, verdict=verdict))
    assert told in shell(asked)
    report = replace(issue(run, run.findings[0], inspect=None), recipe=asked)
    assert told in issue_report.render(report, harness_version="1").markdown


def test_what_was_changed_since_is_not_passed_off_as_what_ran(run: StoredRun) -> None:
    for path in (run.path / "inputs").iterdir():
        path.write_text("something else")
    with pytest.raises(UsageError, match=r"grow\.py is gone or was changed"):
        script_of(run, "6.3.0")


def test_what_a_copy_lacks_is_told_by_its_report_and_its_issue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both were written silently, with tables of "not known" and a machine without a GPU."""
    path = stored_run.write(tmp_path)
    assert read_result(path).warnings == ()
    for trial in (path / "trials").iterdir():
        trial.unlink()
    told = f"{path}/trials: lacks the files of 9 launches, with their traces and facts; copy the run's whole directory"
    assert read_result(path).warnings == (told,)
    assert main(["issue", str(path), "1"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith(f"harness: {told}\n")
    assert "none used" not in said.out


# ---------------------------------------------------------------- diff


def changed(found: EnvironmentDifference) -> dict[str, tuple[str | None, str | None]]:
    return {one.name: (one.before, one.after) for section in found.sections for one in section.changes}


def test_what_changed_is_told_by_the_journal_alone(run: StoredRun) -> None:
    found = difference(run, find_finding(run, ["1"])[1], inspect=None)
    assert changed(found) == {
        "multidict": ("6.2.0", "6.3.0"),
        "six": (None, "1.16.0"),
        "libcufft.so": ("10.3", "11.0"),
    }
    text = render(found)
    assert "not known: layers" in text
    assert json.loads(json.dumps(to_json(found)))["before"] == "6.2.0"


def section_of(title: str, old: dict[str, Any], new: dict[str, Any]) -> Section:
    """Return one section of the difference between launches with these facts."""
    before, after = (replace(build.trial("c", 1, build.flat()), facts=facts_of(facts)) for facts in (old, new))
    (found,) = [one for one in sections(before, after) if one.title == title]
    return found


def test_a_library_that_is_loaded_in_two_versions_is_told_with_both() -> None:
    """One version hid the other, and with it the change."""
    found = section_of(
        "loaded libraries", {"libraries": ["libssl.so.1.1", "libssl.so.3"]}, {"libraries": ["libssl.so.3"]}
    )
    assert [(one.name, one.before, one.after) for one in found.changes] == [("libssl.so", "1.1, 3", "3")]


def test_libraries_of_a_launch_whose_first_step_failed_are_not_known_because_of_that_step() -> None:
    """The text named the setup alone, so a user searched the setup of a version whose first step crashed."""
    assert "after setup and the first step" in section_of("loaded libraries", {"libraries": []}, {}).unknown


def test_what_sets_the_pace_of_the_ranks_is_a_difference() -> None:
    """Maintainers ask for these first when a training of several processes became slower."""
    old, new = (
        {
            "ranks": [
                {"rank": rank, "about": {"NCCL": nccl, "OMP_NUM_THREADS": threads[rank]}, "steps": 1}
                for rank in range(3)
            ]
        }
        for nccl, threads in (("2.18.5", "444"), ("2.21.5", "141"))
    )
    found = section_of("ranks", old, new)
    assert [(one.name, one.before, one.after) for one in found.changes] == [
        ("NCCL", "2.18.5", "2.21.5"),
        ("OMP_NUM_THREADS", "4", "1 (ranks 0 and 2), 4 (rank 1)"),
    ]
    assert found.same == 1, "their number"
    assert section_of("ranks", {}, {}).changes == ()


def test_a_wheel_of_another_kind_is_a_difference() -> None:
    """The version number alone hid that the older one ran as pure Python."""
    pure, built = "py3-none-any", "cp311-cp311-linux_x86_64"
    old, new = ({"packages": {}, "wheels": told} for told in ({"msgpack": pure, "six": pure}, {"msgpack": built}))
    changes = section_of("wheels", old, new).changes
    assert [(one.name, one.before, one.after) for one in changes] == [("msgpack", pure, built)]
    assert section_of("wheels", old, {"packages": {}}).unknown


def test_layers_and_labels_come_from_the_engine(run: StoredRun) -> None:
    def inspect(image: str) -> Mapping[str, Any]:
        old = image == stored_run.IDS["6.2.0"]
        config = {"Labels": {"cuda": "11.1" if old else "11.8"}, "Entrypoint": None}
        return {"RootFS": {"Layers": ["a", "b"] if old else ["a", "c", "d"]}, "Config": config}

    found = difference(run, find_finding(run, ["1"])[1], inspect=inspect)
    assert changed(found)["label cuda"] == ("11.1", "11.8")
    assert next(section.same for section in found.sections if section.title == "layers") == 1


def test_an_engine_that_is_silent_leaves_the_rest_known(run: StoredRun) -> None:
    def inspect(image: str) -> Mapping[str, Any]:
        raise InfrastructureError("no engine")

    text = render(difference(run, find_finding(run, ["1"])[1], inspect=inspect))
    assert "not known: image settings: no engine" in text
    assert "libcufft.so" in text


# ---------------------------------------------------------------- issue


def report_of(run: StoredRun, *words: str) -> issue_report.Report:
    found = find_finding(run, words)[1]
    return issue_report.render(issue(run, found, inspect=None), harness_version="1")


def test_the_report_holds_what_its_readers_ask(run: StoredRun, tmp_path: Path) -> None:
    report = report_of(run, "1")
    assert report.markdown.startswith("# multidict 6.3.0: memory leak, 7.84 KiB/step (6.2.0 is good)\n")
    for part in (
        "| 6.3.2",
        "native heap",
        "glibc 2.36",
        "libcufft.so 10.3",
        "docker build",
        "Confirmed: yes. 3 launches of",
    ):
        assert part in report.markdown, part
    assert set(report.files) == {"issue.md", "repro.py", "versions.png", "versions.svg", "steps.png", "steps.svg"}
    code = re.search(r"```python\n(.*?)```\n", report.markdown, re.DOTALL)
    assert code is not None
    assert played(code[1].replace("steps=4000", "steps=40"), tmp_path / "bare").returncode == 0


def test_a_terminal_gets_the_name_of_the_report_and_a_pipe_its_text(
    run: StoredRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hundreds of lines were printed on the terminal, although a file contains them."""
    words = ["issue", str(run.path), "1"]
    assert main(words) == 0
    piped = capsys.readouterr()
    text = run.path / "issue-1" / "issue.md"
    assert piped.out == text.read_text()
    assert f"wrote {text}, ready to paste; next to it: repro.py, versions.png" in piped.err
    screen, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as output, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        assert main(words) == 0
    assert capsys.readouterr().err == piped.err
    with pytest.raises(OSError, match="Input/output error"):  # nothing is on the screen, and nothing writes to it
        os.read(screen, 1)
    os.close(screen)


def test_nothing_private_is_in_the_report(tmp_path: Path) -> None:
    def crashing(version: str, _lane: Lane, _variant: Variant) -> CellVerdict:
        return build.crash() if version == "6.3.0" else build.flat()

    run = opened(tmp_path, lane=build.OLD, judge=crashing)
    text = report_of(run, "1").markdown
    assert "crash in step 3" in text
    private = ["hush", "nvapi-", "/home/ada", "/root/", "ada:pw", "lab-secret-7", "lab-3090", "GPU-"]
    assert [word for word in private if word in text] == []
    assert "API\\_TOKEN" in text


def test_a_fix_is_reported_with_its_bad_side(run: StoredRun) -> None:
    assert report_of(run, "2").markdown.startswith("# multidict 6.3.0: memory leak, 7.84 KiB/step (6.3.2 is good)\n")


def test_the_title_of_a_fault_without_a_beginning_names_no_good_version(run: StoredRun) -> None:
    """`(2 is good)` stood above `in every version from 1`: version 2 had only passed its launches."""
    found = issue(run, find_finding(run, ["1"])[1], inspect=None)
    assert found.good is not None
    begun = replace(found, finding=replace(found.finding, kind="bad_from_start", before=None))
    text = issue_report.render(begun, harness_version="1").markdown
    assert text.startswith("# multidict 6.3.0: memory leak, 7.84 KiB/step\n")


def test_a_long_script_is_a_file_beside_a_report_that_a_tracker_takes(run: StoredRun) -> None:
    found = issue(run, find_finding(run, ["1"])[1], inspect=None)
    assert found.recipe is not None
    long = replace(found, recipe=replace(found.recipe, files={"data.bin": bytes(range(256)) * 1000}))
    report = issue_report.render(long, harness_version="1")
    assert len(report.markdown) < 65_536
    assert "is attached as repro.py" in report.markdown
    assert len(report.files["repro.py"]) > 256_000


PRIVATE = (
    ("HF_TOKEN", "x"), ("NGC_APIKEY", "x"), ("DB_PASSWORD", "x"), ("SAID", "hf_abcdefghijklmnop"),
    ("HTTPS_PROXY", "http://ada:pw@proxy:3128"), ("DATA", "/home/ada/data"), ("TRACKING", "http://lab-7:5000"),
)  # fmt: skip
HARMLESS = (
    ("MODE", "fast $(touch x)"),
    ("TOKENIZERS_PARALLELISM", "false"),
    ("AUTHOR", "me"),
    ("LD_LIBRARY_PATH", "/x"),
)


def test_strangers_get_the_variables_that_it_takes_and_none_that_is_private(tmp_path: Path) -> None:
    """Without its variables a script shows nothing; with a token in it, it cannot be sent."""
    run = opened(tmp_path, environment=(*PRIVATE, *HARMLESS))
    made = for_strangers(recipe_of(run))
    assert (made.environment, made.withheld) == (HARMLESS, tuple(name for name, _ in PRIVATE))


def test_a_script_of_a_command_in_place_says_where_to_start_it(run: StoredRun) -> None:
    """It said `cd .`, and failed in any other folder with an error of its own."""
    text = shell(replace(recipe_of(run), run=InPlace()))
    assert "cd ." not in text
    assert "Start it in the folder in which the command ran" in text


def test_what_goes_wrong_elsewhere_in_another_way_is_not_the_same_fault(run: StoredRun) -> None:
    """A reader would look for a leak where the version crashes."""
    found = issue(run, find_finding(run, ["1"])[1], inspect=None)
    crashes = replace(found.bad, verdict=build.crash())
    report = issue_report.render(replace(found, elsewhere=(crashes, found.bad)), harness_version="1").markdown
    told = [line.partition(" in ")[0] for line in report.splitlines() if line.startswith(("- Also", "- Another"))]
    assert told == ["- Also present", "- Another fault"]


def test_what_grows_below_the_limit_is_not_said_to_be_without_the_fault(run: StoredRun) -> None:
    """A leak of 0.471 KiB/step below the limit of 0.5 was `Not present in digits=40: flat`."""
    found = issue(run, find_finding(run, ["1"])[1], inspect=None)
    slow = SignalVerdict(seen="good", value=0.471, ci=(0.46, 0.48), limit=0.5)
    small = replace(found.bad, verdict=build.seen(build.flat(), memory=slow))
    report = issue_report.render(replace(found, elsewhere=(small,)), harness_version="1").markdown
    assert "Small growth, below the limit, in " in report
    assert "small growth 0.471 KiB/step" in report
    assert "Not present" not in report


def test_a_base_that_only_this_machine_has_is_not_what_readers_are_told_to_take(tmp_path: Path) -> None:
    """`FROM harness-base` is an error on every other machine."""
    source = Install(base="harness-base:bookworm", python=None, packages=("multidict==6.3.0",))
    run = opened(tmp_path, source=source)
    told = report_of(run, "1")
    assert "FROM python:3.11-slim-bookworm\n" in told.markdown
    assert "FROM harness-base" not in told.markdown
    assert "on top of harness-base:bookworm, an image that only that machine has" in told.markdown
    assert not [text for text in told.warnings if "readers cannot get" in text]
    assert "FROM harness-base:bookworm" in shell(recipe_of(run)), "here it is there"


@pytest.mark.parametrize(
    ("reference", "host"),
    [
        ("registry.corp:5000/team/tf:1", "registry.corp:5000"),
        ("localhost/tf:1", "localhost"),
        ("nvcr.io/nvidia/tf:1", ""),
        ("ghcr.io/o/tf@sha256:" + "ab" * 32, ""),
        ("python:3.11", ""),
        ("me/tf:1", ""),
    ],
)
def test_a_registry_that_readers_may_not_reach_is_told(tmp_path: Path, reference: str, host: str) -> None:
    report = report_of(opened(tmp_path, source=Pull(reference=reference)), "1")
    warned = [text for text in report.warnings if "registry" in text]
    assert warned == ([f"the report names a registry that may be private: {host}"] if host else [])
    assert ("may be private: readers may need another source" in report.markdown) == bool(host)


def built_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredRun:
    """Return a run with images that were built from a folder here."""
    folder = tmp_path / "img"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\nARG WHEEL\n")
    source = Build(context=Path("img"), args=(("WHEEL", "$(touch x)"), ("INDEX_TOKEN", "hush")))
    monkeypatch.chdir(tmp_path)
    return opened(tmp_path, source=source)


def test_a_built_image_comes_with_its_dockerfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers have no other way to get the image; a Dockerfile that changed since the run would make a different
    one.
    """
    run = built_run(tmp_path, monkeypatch)
    report = report_of(run, "1")
    assert "```dockerfile\nFROM scratch\nARG WHEEL\n```" in report.markdown
    assert "--build-arg 'WHEEL=$(touch x)' --build-arg INDEX_TOKEN img" in report.markdown
    (tmp_path / "img" / "Dockerfile").write_text("FROM something-else\n")
    assert report_of(run, "1").markdown == report.markdown
    (kept,) = [path for path in (run.path / "inputs").iterdir() if path.read_bytes().startswith(b"FROM scratch")]
    kept.write_text("FROM something-else\n")
    damaged = report_of(run, "1")
    assert "FROM " not in damaged.markdown
    assert "attach its Dockerfile" in damaged.warnings[0]


def test_a_build_that_fails_leaves_no_container_with_the_reader(run: StoredRun) -> None:
    """An engine without BuildKit keeps the container of a failed step."""
    text = shell(recipe_of(run)) + report_of(run, "1").markdown
    assert text.count("docker build ") == text.count(" --force-rm ") == 2


def test_a_script_that_builds_its_image_can_be_started_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = built_run(tmp_path, monkeypatch)
    text = shell(recipe_of(run))
    assert f"--build-arg INDEX_TOKEN {tmp_path}/img)" in text
    assert "hush" not in text


def test_a_host_that_the_matrix_calls_by_a_machine_s_name_is_warned_of(tmp_path: Path) -> None:
    lane = Lane(host=replace(build.HERE.host, name="lab-7", engine="ssh://ada@lab-7"))
    assert "lab-7" in report_of(opened(tmp_path, lane=lane), "1").warnings[0]


@pytest.mark.parametrize("given", [{}, {"API_TOKEN": "hush"}])
def test_a_repro_has_no_credential_in_it_and_takes_it_from_its_caller(tmp_path: Path, given: dict[str, str]) -> None:
    command = (sys.executable, "-c", "import os; print(os.environ.get('API_TOKEN'), os.environ['TF_FLAG'])")
    run = opened(tmp_path, lane=PROCESS, script=None, command=command)
    made = recipe_of(run)
    assert isinstance(made.run, Machine)
    text = shell(replace(made, run=replace(made.run, python=sys.executable)))
    assert "hush" not in text
    environ = {"PATH": os.environ["PATH"], **given}
    done = subprocess.run(["sh", "-c", text], env=environ, capture_output=True, text=True, check=True, timeout=30)
    assert f"{given.get('API_TOKEN')} 1 $(touch x)\n" in done.stdout
    assert ("API_TOKEN is not set" in done.stderr) == (not given)


def test_a_script_for_a_pipe_leaves_the_pipe_as_it_is(run: StoredRun, tmp_path: Path) -> None:
    """`--script /dev/null`, run by root, took away everyone else's permission to write to it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        done = CliRunner().invoke(cli, ["repro", str(run.path), "6.3.0", "--script", str(pipe)])
        assert (done.exit_code, read.result()[:9]) == (0, "#!/bin/sh")
    assert pipe.stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------- what a user does wrong, and what time does to files


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("plan.json", None, "{"),
        ("plan.json", None, "[]"),
        ("plan.json", None, "\udcff"),
        ("plan.json", None, "[" * 100_000),
        ("plan.json", None, None),
        ("plan.json", '"cells": [[', '"cells": [], "were": [['),
        ("result.json", None, '{"cells": {}, "findings": []}'),
        ("result.json", None, "null"),
        ("result.json", None, None),
        ("result.json", '"after":"6.3.0"', '"after":"9.9"'),
        ("result.json", '"cells": {', '"cells": {"x": 1, '),
        ("trials", None, "{"),
        ("trials", None, '{"schema": 1}'),
        ("trials", None, "[" * 100_000),
    ],
    ids=itertools.count(),
)
def test_a_damaged_or_edited_directory_is_a_message_or_told_without(
    tmp_path: Path, name: str, old: str | None, new: str | None
) -> None:
    path = stored_run.write(tmp_path, lane=PROCESS)
    target = next((path / "trials").iterdir()) if name == "trials" else path / name
    if new is None:
        target.unlink()
    elif old is None:
        target.write_text(new, errors="surrogateescape")
    else:
        text = target.read_text()
        assert old in text
        target.write_text(text.replace(old, new))
    for command, *what in (("repro", "6.3.0"), ("issue", "1"), ("diff", "1"), ("report",), ("frontier",)):
        done = CliRunner().invoke(cli, [command, str(path), *what])
        assert done.exception is None or isinstance(done.exception, UsageError), (command, done.exception)


def test_facts_that_no_launch_reported_are_not_known(tmp_path: Path) -> None:
    path = stored_run.write(tmp_path, lane=PROCESS)
    run = read_again(path)
    for trial in map(read_trial, trial_files(path)):
        unknown = replace(trial, facts=Facts(), fingerprint={"gpus": ["x"]})
        write_trial(path, unknown, find_cell(run, [trial.cell_id]))
    run = read_again(path)
    assert "not known" in render(difference(run, find_finding(run, ["1"])[1], inspect=None))
    assert "packages not known" in report_of(run, "1").markdown
    subprocess.run(["sh", "-n"], input=shell(recipe_of(run)), text=True, check=True)


def test_a_finding_that_is_bad_from_the_start_is_compared_with_its_fix(run: StoredRun) -> None:
    """`diff` refused it, although a later version is good."""
    from_start = replace(find_finding(run, ["1"])[1], kind="bad_from_start", before=None)
    fixed = find_finding(run, ["2"])[1]
    known = replace(run, told=replace(run.told, findings=(from_start, fixed)))
    found = difference(known, from_start, inspect=None)
    assert (found.before, found.after) == ("6.3.0", "6.3.2")
    slower = replace(from_start, metric="step_time")
    known = replace(run, told=replace(run.told, findings=(slower,)))
    with pytest.raises(UsageError, match="no good version to compare with"):
        difference(known, slower, inspect=None)


def test_a_report_says_how_many_launches_show_the_fault(run: StoredRun) -> None:
    """`Confirmed: yes` stood beside `2 of 6 launches`, and `not tested, because the launches agree`."""
    found = issue(run, find_finding(run, ["1"])[1], inspect=None)
    split = replace(found.bad, verdict=replace(found.bad.verdict, trials=6, agreeing=2, steps=4000))
    report = issue_report.render(replace(found, bad=split), harness_version="1").markdown
    assert "- Confirmed: yes. 2 of 6 launches of 6.3.0 show it" in report
    assert "not tested" not in report


def test_a_report_on_workers_tells_of_their_memory_first(run: StoredRun) -> None:
    """`Where it occurs` told only of the main process, which is flat."""
    found = issue(run, find_finding(run, ["1"])[1], inspect=None)
    assert found.trial is not None
    assert found.trial.trace is not None
    step = np.arange(0.0, 4000.0, 100.0)
    trace = replace(found.trial.trace, counts={"step": step, "worker_memory": 1000 + 8.1 * step})
    lines = list(issue_report.growth_lines(replace(found.trial, trace=trace), "worker_memory"))
    assert lines[0] == "Memory of the workers: 8.1 KiB/step between the first and last count."


def test_a_report_on_workers_has_their_growth_in_its_table_and_counts_the_launches_that_were_judged(
    run: StoredRun,
) -> None:
    """The table gave the main process's 0 KiB for both versions; one good launch was too brief to tell."""
    found = issue(run, find_finding(run, ["1"])[1], inspect=None)
    assert found.good is not None
    leak = replace(found.finding, metric="worker_memory", effect=Effect(value=18.0, unit="KiB/step"))
    of_workers = SignalVerdict(seen="bad", value=18.0, ci=(15.4, 20.7), limit=0.5)
    grows = replace(build.seen(build.flat(), worker_memory=of_workers), verdicts=("growth",), trials=6, agreeing=2)
    bad = replace(found.bad, verdict=grows)
    first, *rest = found.good.trials
    good = replace(
        found.good,
        trials=(replace(first, end="stopped"), *rest),
        verdict=build.seen(found.good.verdict, worker_memory=SignalVerdict(seen="good", value=0.0)),
    )
    asked = replace(found, finding=leak, bad=bad, good=good, history=(good, bad))
    report = issue_report.render(asked, harness_version="1").markdown
    assert "| memory of the workers, KiB/step (interval) " in report
    assert "| 18 (15.4 to 20.7) " in report
    of_good = f"the {len(rest)} launches of 6.2.0 that ran the whole budget"
    assert f"2 of 6 launches of 6.3.0 show it at a constant rate, and {of_good} do not" in report


def test_a_report_on_a_level_tells_its_figures(run: StoredRun) -> None:
    """A report on a slower end said only that memory is flat in both versions, also in its table of versions."""
    found = issue(run, find_finding(run, ["1"])[1], inspect=None)
    ends = replace(found.finding, metric="end_time", effect=Effect(value=3.0, unit="s"), verdict="slower", p=1e-9)
    assert found.good is not None
    sides = [
        replace(one, verdict=build.seen(build.flat(), end_time=SignalVerdict(seen="good", value=value)))
        for one, value in ((found.good, 0.01), (found.bad, 3.01))
    ]
    ended = replace(sides[1].verdict.of("end_time"), seen="bad")
    sides[1] = replace(sides[1], verdict=build.seen(sides[1].verdict, end_time=ended))
    found = replace(found, finding=ends, good=sides[0], bad=sides[1], history=tuple(sides))
    report = issue_report.render(found, harness_version="1")
    verdicts = {
        cells[1].strip(): (cells[3].strip(), cells[4].strip())
        for line in report.markdown.splitlines()
        if len(cells := line.split("|")) == 9
    }
    assert verdicts["version"] == ("verdict", "time to end")
    assert verdicts["6.2.0"] == ("flat", "10.0 ms")
    assert verdicts["6.3.0"] == (SIGNALS["end_time"].noun, "3.01 s")
    assert "| ms/step (interval) " in report.markdown
    by_line = replace(sides[1], verdict=replace(sides[1].verdict, per="line"))
    told = issue_report.render(replace(found, bad=by_line), harness_version="1").markdown
    assert "| ms/line (interval) " in told, "all other figures of the report are counted by lines"
    assert "- Size: 3.00 s.\n" in report.markdown
    assert "- 6.2.0: time to end 10.0 ms\n- 6.3.0: time to end 3.01 s\n" in report.markdown
