"""The command line: what a shell completes, how fast it answers, and that its lists match the program."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner

from harness.cli import COMMANDS, cli, command, run
from harness.cli.common import has_input, show, write_file
from harness.cli.results import FORMATS
from harness.cli.sweep import _print_settled
from harness.errors import UsageError
from harness.probes import flow as probing
from harness.probes.command import PROBES
from tests.players import build

ROOT = Path(__file__).parents[2]


def completed(words: str) -> list[str]:
    """Return what the shell offers after these words; an empty last word stands for a space."""
    told = asked("bash_complete", COMP_WORDS=f"harness {words}", COMP_CWORD=str(1 + words.count(" ")))
    return [line.partition(",")[2] for line in told.splitlines()]


def asked(instruction: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import harness.__main__; harness.__main__.main()"],
        env={**os.environ, **environ, "_HARNESS_COMPLETE": instruction}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not done.stderr
    return done.stdout


def test_a_shell_is_given_commands_options_and_choices() -> None:
    assert completed("re") == ["report", "repro"]
    assert completed("") == list(COMMANDS)
    assert completed("sweep --se") == ["--series", "--search", "--seed"]
    assert completed("sweep m.yaml --search ") == ["full", "bisect", "auto"]
    assert completed("report latest --format ") == list(FORMATS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    """`eval "$(_HARNESS_COMPLETE=bash_source harness)"` is what the docs say."""
    script = asked(f"{shell}_source")
    assert f"_HARNESS_COMPLETE={shell}_complete" in script
    if shell == "bash":
        subprocess.run(["bash", "-n", "-c", script], check=True)


def test_help_groups_the_commands_by_what_a_user_wants_to_do() -> None:
    told = CliRunner().invoke(cli, ["--help"]).output
    places = [told.index(f"\n{title}:\n") for title in ("Find", "Understand", "Tell", "Care")]
    assert places == sorted(places)
    assert places[0] < told.index("  try  ") < places[1] < told.index("  diff  ") < places[2] < told.index("  issue  ")


@pytest.mark.parametrize("name", ["try", "sweep"])
def test_help_tells_that_time_does_not_end_a_launch(name: str) -> None:
    """A launch went on after the time was over, which only a page of the docs told."""
    assert "a running launch is not cut off" in " ".join(CliRunner().invoke(cli, [name, "--help"]).output.split())


def test_help_and_completion_do_not_wait_for_statistics() -> None:
    """numpy, pydantic and Docker's SDK take a second to import, which is too long for the Tab key."""
    code = f"""if True:
        import sys
        from harness.cli import command
        for name in {sorted(COMMANDS)}:
            command(name)
            heavy = {{'numpy', 'scipy', 'pydantic', 'docker', 'yaml'}} & set(sys.modules)
            assert not heavy, f"the command {{name}} imports {{heavy}}"
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_sweep_in_environments_does_not_wait_for_the_client_of_docker() -> None:
    """The import took a fifth of the time until the first launch."""
    code = "import harness.flows.sweep, harness.run.process.engine, sys; assert 'docker' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("start", ["the console script", "python -m harness"])
def test_without_memory_for_its_imports_it_says_so_in_one_line(start: str) -> None:
    """A user who types `harness` gets the same line as one who types `python -m harness`, and no traceback."""
    (module, function) = re.findall(r'^harness = "(.+):(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
    called = f"from {module} import {function}; {function}()"
    code = f"""if True:
        import importlib.abc, runpy, sys
        class Full(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name == "harness.cli":
                    raise MemoryError
        sys.meta_path.insert(0, Full())
        {called if start == "the console script" else "runpy.run_module('harness', run_name='__main__')"}
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    line = "harness: not enough memory to start; free some and run the same command again\n"
    assert (done.returncode, done.stderr) == (3, line)


def test_the_lists_that_are_told_without_an_import_are_true() -> None:
    (wanted,) = [param.type for param in command("report").params if param.name == "wanted"]
    assert isinstance(wanted, click.Choice)
    assert list(wanted.choices) == list(FORMATS)
    assert sorted(probing.FINDERS) == list(PROBES)


# ---------------------------------------------------------------- streams, and files that a user names


def ended(line: str) -> tuple[int, str]:
    """Return the exit code of a shell line with `harness` in it, and its stderr, unless that was redirected."""
    program = shlex.join([sys.executable, "-m", "harness"])
    done = subprocess.run(
        ["sh", "-c", line.replace("harness ", f"{program} ")], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("stdin", "has_data"),
    [("< file", True), ("< empty", False), ("< /dev/null", False), ("<&-", False), ("0>> file", False)],
)  # fmt: skip
def test_input_that_no_launch_reads_is_noticed(stdin: str, tmp_path: Path, *, has_data: bool) -> None:
    (tmp_path / "file").write_text("1,2\n")
    (tmp_path / "empty").touch()
    code = "import sys; from harness.cli.common import has_input; sys.exit(has_input())"
    line = f"cd {shlex.quote(str(tmp_path))} && {shlex.join([sys.executable, '-c', code])} {stdin}"
    assert subprocess.run(["sh", "-c", line], check=False).returncode == has_data


def test_a_pipe_or_a_socket_is_not_waited_for() -> None:
    one, other = socket.socketpair()
    pipe = os.pipe()
    with one, other:
        for reader, writer in (pipe, (one.fileno(), other.fileno())):
            assert not has_input(reader)
            os.write(writer, b"x")
            assert has_input(reader)
            os.read(reader, 1)
            assert not has_input(reader)
    for fd in pipe:
        os.close(fd)
    assert not has_input(pipe[0])


@pytest.mark.parametrize("data", [b"1,2\n", b""])
def test_each_launch_of_try_has_an_empty_stdin_and_says_so(tmp_path: Path, data: bytes) -> None:
    """`cat d.csv | harness try --vary V=a,b -- python3 s.py` counted 0 rows in each launch, and said nothing."""
    reader, writer = os.pipe()
    os.write(writer, data)
    words = [sys.executable, "-m", "harness", "try", "--vary", "V=a,b", "--trials", "1:1", "--", "true"]
    done = subprocess.run(words, cwd=tmp_path, stdin=reader, capture_output=True, text=True, check=False)
    os.close(reader)
    os.close(writer)
    assert "well after" in done.stderr
    assert ("the stdin of each launch is empty" in done.stderr) == bool(data)


@pytest.mark.parametrize("line", ["runs --in", "history --in", "compare", "report", "frontier"])
def test_a_path_that_cannot_be_looked_at_is_a_message(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a traceback, or stdout was blamed for it."""
    loop, long = tmp_path / "loop", "x" * 300
    loop.symlink_to(loop)
    for path in (loop / "y", long):
        code, told = run([*line.split(), str(path)]), capsys.readouterr().err
        assert (code, told.count("\n")) == (2, 1)
        assert str(path) in told
        assert "stdout" not in told


def test_a_folder_that_was_removed_is_a_message(tmp_path: Path) -> None:
    code, said = ended(f"mkdir {tmp_path}/x; cd {tmp_path}/x; rmdir {tmp_path}/x; harness try a==1 a==2 -- python a.py")
    assert (code, said) == (2, "harness: the folder that this shell is in was removed; change to another one\n")


@pytest.mark.parametrize("words", ["--env-file LOOP -- true", "-- python LOOP", "-- true"])
def test_a_link_to_itself_is_a_message(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before Python 3.13, pathlib raises a RuntimeError for it."""
    monkeypatch.chdir(tmp_path)
    for name in ("loop.py", "a.txt", "b.txt"):
        (tmp_path / name).symlink_to(name)
    versions = ["a.txt", "b.txt"] if words == "-- true" else ["six==1.15.0", "six==1.16.0"]
    code = run(["try", *versions, "--write", "m.yaml", *words.replace("LOOP", "loop.py").split()])
    told = capsys.readouterr().err
    assert (code, "Traceback" in told) == (2, False), told


def test_a_full_disk_under_stdout_is_a_message() -> None:
    """It was a traceback, with an exit code that means "report a bug"."""
    code, said = ended("harness schema >/dev/full")
    assert (code, said.count("\n")) == (3, 1)
    assert "stdout: cannot be written: No space left on device" in said


@pytest.mark.parametrize("words", ["report BAD", "BAD", "report latest --BAD", "sweep x --search BAD", "judge BAD"])
def test_what_a_user_names_does_not_act_on_the_terminal(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A shell completes a file name, whoever chose it."""
    assert run([word.replace("BAD", "\x1b]0;owned\x07\x1b[2Jbad\x1b") for word in words.split()]) == 2
    said = capsys.readouterr().err
    assert "bad" in said
    assert all(part.isprintable() for part in said.split("\n")), ascii(said)


def test_what_is_printed_is_harmless_on_a_terminal_and_whole_in_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report quotes scripts, which may contain anything; a script in a file must run unchanged."""
    text = "def step():\n    print('\x1b[2J')\n"
    show(text)
    assert capsys.readouterr().out == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show(text)
    assert capsys.readouterr().out == "def step():\n    print('')\n"


@pytest.mark.parametrize("away", ["2>/dev/full", "2>&-"])
def test_an_exit_code_does_not_hang_on_stderr(away: str, tmp_path: Path) -> None:
    """1 would say that an image is bad."""
    assert ended(f"harness report {tmp_path}/nothing {away}")[0] == 2


def test_a_stdout_that_is_closed_takes_no_file(tmp_path: Path) -> None:
    """The next opened file would get number 1, and the output would be written into it."""
    assert ended(f"cd {tmp_path} && harness try six==1.15.0 six==1.16.0 --write a.yaml -- true >&-")[0] == 0
    assert (tmp_path / "a.yaml").read_text().startswith("# Written by")


def test_a_matrix_for_which_there_is_no_room_is_not_begun(tmp_path: Path) -> None:
    """An empty file was left, which the next call took for a user's file."""
    code, said = ended(f"cd {tmp_path}; ulimit -f 0; harness try six==1.15.0 six==1.16.0 --write a.yaml -- true")
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "cannot write" in said


def test_a_pipe_or_a_device_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    """With `--out /dev/null`, root replaced the device with a plain file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        write_file(pipe, "a report")
        assert read.result() == "a report"
    assert pipe.is_fifo()


def test_a_link_still_leads_to_the_file_that_was_written(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "site" / "report.md")
    write_file(tmp_path / "link", "a report")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "site" / "report.md").read_text() == "a report"


def test_where_nothing_can_be_written_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "x", tmp_path / "none" / "x"):
        with pytest.raises(UsageError, match="cannot be written"):
            write_file(path, "")


def test_a_run_that_leaves_nothing_to_decide_is_told_in_the_words_of_the_reports(capsys) -> None:
    """It said `(regression)`, which is the verdict's code in files."""
    _print_settled(build.quickstart(), as_json=False)
    told = capsys.readouterr().out
    assert "leaves no cause undecided (verdict: regression); without --decide, hosts with a new driver" in told


def test_judge_goes_on_past_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A night's traces are judged together; a damaged trace must neither hide the others nor count as read."""
    good = tmp_path / "good.csv"
    good.write_text("step,rss_kib\n" + "".join(f"{step},80000\n" for step in range(1, 200)) + "200")
    (tmp_path / "bad.csv").write_text("step,rss_kib\n1,five\n")
    names = [str(tmp_path / name) for name in ("none.csv", "good.csv", "bad.csv", "good.csv")]
    assert run(["judge", *names]) == 2
    out, err = capsys.readouterr()
    assert [json.loads(line)["trace"] for line in out.splitlines()] == [str(good)] * 2
    assert {line.split(": ")[1] for line in err.splitlines()} == {"note", names[0], f"{names[2]}:2"}
    assert f"{good}:201: the last line seems truncated" in err


@pytest.mark.parametrize("limit", ["nan", "inf", "-inf", "1e999", "much"])
def test_a_limit_that_nothing_can_exceed_is_refused(limit: str, tmp_path: Path) -> None:
    """With it every column was flat, whatever it contained."""
    trace = tmp_path / "trace.csv"
    trace.write_text("step,handles\n" + "".join(f"{step},{9 * step}\n" for step in range(1, 200)))
    done = CliRunner().invoke(cli, ["judge", str(trace), "--metric", f"handles={limit}"])
    assert isinstance(done.exception, UsageError)
    assert "--metric" in str(done.exception)


def _broken_library() -> ImportError:
    """Raise the error of a library that could not be loaded, which blames its installation."""
    error = ImportError("the install you are using seems to be broken")
    error.__cause__ = ImportError("/lib/libm.so: failed to map segment from shared object")
    error.__cause__.__cause__ = error  # a circular chain of causes has an end, too
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        _broken_library(),
    ],
)
def test_a_machine_without_memory_is_no_bug(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep on a machine without free memory ended with a traceback that asked for a bug report."""

    def refuse(*arguments: object, **settings: object) -> None:
        raise error

    monkeypatch.setattr(cli, "main", refuse)
    assert run([]) == 3
    told = capsys.readouterr().err
    assert "ran out of memory or threads" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(("of", "title"), [((), "matrix.yaml"), (("summary",), "summary.json of a harness run")])
def test_a_program_gets_the_schema_that_it_checks_with(of: tuple[str, ...], title: str) -> None:
    done = CliRunner().invoke(cli, ["schema", *of])
    schema = json.loads(done.stdout)
    assert (done.exit_code, schema["title"]) == (0, title)
    jsonschema.Draft202012Validator.check_schema(schema)


STOPPABLE = """
import os, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever this test was started with
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in {ignored}: signal.signal(number, signal.SIG_IGN)
from harness.cli.common import stop_on_signals
with stop_on_signals() as stopped:
    for number in {sent}:
        os.kill(os.getpid(), number)
        time.sleep(0.01)
        print(stopped.is_set(), flush=True)
"""


@pytest.mark.parametrize(
    ("ignored", "sent", "told", "code"),
    [
        ((signal.SIGHUP,), (signal.SIGHUP, signal.SIGTERM), "False True", 0),
        ((), (signal.SIGHUP, signal.SIGTERM), "True True", 0),
        ((), (signal.SIGTERM, signal.SIGINT), "True", -signal.SIGINT),
        ((), (signal.SIGINT, signal.SIGINT), "True", -signal.SIGINT),
    ],
    ids=["nohup", "terminal", "then Ctrl-C", "Ctrl-C twice"],
)
def test_a_signal_stops_unless_it_was_ignored_and_a_second_ctrl_c_ends_at_once(
    ignored: tuple[int, ...], sent: tuple[int, ...], told: str, code: int
) -> None:
    """`nohup harness sweep &` ended with the terminal, and nothing ended a run that did not stop."""
    text = STOPPABLE.format(ignored=list(map(int, ignored)), sent=list(map(int, sent)))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout.split(), done.returncode) == (told.split(), code), done.stderr
