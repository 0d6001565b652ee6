"""A run's directory from someone else. It must not read, write, ask or start anything that its reader did not intend,
nor make a command wait or fill the memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from harness.cli import cli
from harness.errors import InfrastructureError, UsageError
from harness.flows import evidence as diff_flow
from harness.history import watch_state
from harness.model import Build, Lane, Pull
from harness.report.issue import reproduction
from harness.report.issue.reproduction import shell
from harness.store import inputs, json_files, read_trial
from tests.players import build, stored_run
from tests.players.stored_run import opened, read_again, recipe_of

PROCESS = Lane(host=replace(build.HERE.host, name="venv", engine="process"))
SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"


def harness(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(one) for one in arguments])


def edited(path: Path, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    """Change plan.json, as its sender may."""
    plan = json.loads((path / "plan.json").read_text())
    change(plan)
    (path / "plan.json").write_text(json.dumps(plan))


def replaced(path: Path, script: bytes) -> None:
    """Put another script into the run, as if it had been the scenario's."""
    name = hashlib.sha256(script).hexdigest()
    (path / "inputs" / name).write_bytes(script)
    edited(path, lambda plan: plan["files"]["grow"].update({"grow.py": name}))


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize("name", ["repro.py", "issue.md", "versions.png"])
def test_a_bug_report_overwrites_nothing_outside_its_run(tmp_path: Path, name: str) -> None:
    """A link in the run wrote the script, which its sender chose, into any file of the reader, such as ~/.bashrc."""
    path = stored_run.write(tmp_path)
    mine = tmp_path / "bashrc"
    mine.write_text("mine")
    (path / "issue-1").mkdir()
    (path / "issue-1" / name).symlink_to(mine)
    done = harness("issue", path, 1)
    assert done.exit_code == 0, done.output
    assert mine.read_text() == "mine"
    assert (path / "issue-1" / name).is_file()
    assert not (path / "issue-1" / name).is_symlink()


def test_a_bug_report_follows_no_folder_out_of_its_run(tmp_path: Path) -> None:
    """The files of a report have names that also exist in other folders."""
    path = stored_run.write(tmp_path)
    mine = tmp_path / "mine"
    mine.mkdir()
    (path / "issue-1").symlink_to(mine, target_is_directory=True)
    done = harness("issue", path, 1)
    assert isinstance(done.exception, UsageError)
    assert "issue-1: cannot be written: a link, which is not followed; choose another place with --folder" in str(
        done.exception
    )
    assert list(mine.iterdir()) == []


def test_a_folder_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    path = stored_run.write(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine", target_is_directory=True)
    assert harness("issue", path, 1, "--folder", tmp_path / "link").exit_code == 0
    assert (tmp_path / "mine" / "repro.py").exists()


def test_other_reports_overwrite_nothing_outside_their_run(tmp_path: Path) -> None:
    path = stored_run.write(tmp_path)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (path / "frontier.svg").symlink_to(mine)
    assert harness("frontier", path).exit_code == 0
    assert mine.read_text() == "mine"


def test_the_lock_of_a_watch_empties_no_file_that_it_is_linked_to(tmp_path: Path) -> None:
    """The watch writes its pid into the lock, over whatever is there."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / watch_state.LOCK).symlink_to(mine)
    with pytest.raises(UsageError, match="a link, which is not followed"), watch_state.only_one(tmp_path):
        pass
    assert mine.read_text() == "mine"


# ---------------------------------------------------------------- what is read


def test_a_bug_report_shows_no_file_of_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """plan.json named a folder, and a private key to which a link there pointed was in the report, ready to paste."""
    folder = tmp_path / "ctx"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    path = stored_run.write(tmp_path, source=Build(context=folder, args=()))
    assert "FROM scratch" in harness("issue", path, 1).stdout

    (tmp_path / "key").write_text(SECRET)
    (folder / "Dockerfile").unlink()
    (folder / "Dockerfile").symlink_to(tmp_path / "key")
    os.utime(folder / "Dockerfile", (1, 1), follow_symlinks=True)
    assert SECRET not in harness("issue", path, 1).stdout
    for name in ("../../../key", str(tmp_path / "key"), "key"):
        edited(path, lambda plan, name=name: plan.update(dockerfiles={str(folder): name}))
        assert SECRET not in harness("issue", path, 1).stdout


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "pipe": lambda path, other: os.mkfifo(path),
    "link": lambda path, other: path.symlink_to(other),
    "device": lambda path, other: path.symlink_to("/dev/zero"),
    "folder": lambda path, other: path.mkdir(),
}
TOLD = {"folder": "Is a directory|not a regular file", "pipe": "not a regular file"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["plan.json", "result.json", "trials/*", "probes.json"])
def test_only_regular_files_are_read(tmp_path: Path, name: str, kind: str) -> None:
    """A pipe made `harness report` wait endlessly, and /dev/zero filled the memory."""
    path = stored_run.write(tmp_path, lane=PROCESS)
    (path / "probes.json").write_text("[]")
    target = next(path.glob(name))
    other = tmp_path / "other"
    target.rename(other)
    KINDS[kind](target, other)
    done = harness("report", path)
    assert isinstance(done.exception, UsageError), done.exception
    text = str(done.exception)
    assert text.startswith(f"{target}: ")
    assert any(words in text for words in TOLD.get(kind, "a link, which is not followed").split("|")), text
    assert "was killed" not in text


def test_launches_that_may_not_be_read_are_not_reported_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report had `0 launches`, and a bug report told to copy the run again."""
    path = stored_run.write(tmp_path)
    monkeypatch.setattr(os, "scandir", Mock(side_effect=PermissionError(13, "Permission denied", f"{path}/trials")))
    with pytest.raises(PermissionError):  # whose path the command line names
        read_again(path)


def test_the_trials_of_another_run_are_not_taken_for_its_own(tmp_path: Path) -> None:
    path = stored_run.write(tmp_path)
    (path / "trials").rename(tmp_path / "elsewhere")
    (path / "trials").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(UsageError, match="trials: a link, which is not followed"):
        read_again(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_file_is_a_regular_file_or_gone(tmp_path: Path, kind: str) -> None:
    path = stored_run.write(tmp_path)
    for kept in (path / "inputs").iterdir():
        other = tmp_path / kept.name
        kept.rename(other)
        KINDS[kind](kept, other)
    with pytest.raises(UsageError, match=r"grow\.py is gone or was changed"):
        recipe_of(read_again(path))


def test_what_is_read_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored_run.write(tmp_path)
    trial = next((path / "trials").iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(json_files, "MOST_BYTES", 0)
        with pytest.raises(UsageError, match=r"plan\.json: larger than 0 MiB"):
            read_again(path)
        with pytest.raises(UsageError, match="larger than 0 MiB"):
            read_trial(trial)
    with monkeypatch.context() as patched:
        patched.setattr(json_files, "MOST_VALUES", 50)
        with pytest.raises(UsageError, match=r"plan\.json: .*it holds more than 50 values"):
            read_again(path)
        with pytest.raises(UsageError, match="it holds more than 50 values"):
            read_trial(trial)
    monkeypatch.setattr(inputs, "MOST_BYTES", 10)
    with pytest.raises(UsageError, match=r"grow\.py is gone or was changed"):
        recipe_of(read_again(path))


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_a_watch_remembers_is_a_regular_file(tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    other.write_text("{}")
    KINDS[kind](tmp_path / watch_state.FILE, other)
    with pytest.raises(InfrastructureError, match=r"watch\.json: cannot be read: (not a regular file|a link)"):
        watch_state.read_memory(tmp_path)


# ---------------------------------------------------------------- what is asked, and started


@pytest.mark.parametrize("command", ["diff", "issue"])
def test_no_engine_is_asked_that_only_the_run_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A report connected to a machine of its sender, with the reader's ssh keys; and what the reader's own engine knew
    about an image that the run names was in a report to strangers.
    """
    lane = Lane(host=replace(build.HERE.host, name="theirs", engine="ssh://theirs.example"))
    path = stored_run.write(tmp_path, lane=lane)
    asked = []

    def connect(host: object, **_: object) -> None:
        asked.append(host)
        raise InfrastructureError("no engine")

    monkeypatch.setattr(diff_flow, "connect", connect)
    done = harness(command, path, 1)
    assert (done.exit_code, asked) == (0, [])
    if command == "diff":
        assert "not known: layers: the engine was not asked; ask it with --ask-engine" in done.stdout
    assert harness(command, path, 1, "--ask-engine").exit_code == 0
    assert len(asked) == 1


def run_by_shell(text: str, folder: Path) -> str:
    """Return what reaches the stdin of a docker that does nothing; the shell is this machine's own."""
    folder.mkdir()
    (folder / "docker").write_text("#!/bin/sh\ncat > stdin\n")
    (folder / "docker").chmod(0o755)
    environ = {"PATH": f"{folder}:/usr/bin:/bin"}
    subprocess.run(["sh"], input=text, text=True, cwd=folder, env=environ, check=True, timeout=30)
    return (folder / "stdin").read_text()


def test_a_script_does_not_end_early_and_run_its_rest_on_the_reader_s_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shells drop a NUL: the line END_OF_SCR\0IPT was not the end mark for us, but it was for them."""
    run = opened(tmp_path)
    made = recipe_of(run)
    found = re.search(r"END_OF_SCRIPT_\w+", shell(made))
    assert found is not None
    assert made.script is not None
    mark = found.group()
    hostile = replace(made, script=f"{made.script}\n{mark[:5]}\0{mark[5:]}\nEND_OF_SCR\0IPT\ntouch started\n")
    text = run_by_shell(shell(hostile), tmp_path / "bench")
    assert "touch started" in text
    assert not (tmp_path / "bench" / "started").exists()


def test_a_script_with_a_nul_is_refused(tmp_path: Path) -> None:
    path = stored_run.write(tmp_path)
    replaced(path, stored_run.SCRIPT.encode() + b"# \0\n")
    with pytest.raises(UsageError, match=r"grow\.py holds a NUL character, so Python cannot run it"):
        recipe_of(read_again(path))


def test_what_a_script_takes_of_its_reader_s_machine_is_told_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who starts a script of a colleague's run expects one container without a network."""
    folder = tmp_path / "home"
    folder.mkdir()
    lane = Lane(host=replace(build.HERE.host, name="theirs", engine="tcp://theirs.example:2376"))
    path = stored_run.write(
        tmp_path, source=Build(context=folder, args=()), lane=lane, network=True, cap_add=("SYS_ADMIN",)
    )
    done = harness("repro", path, "6.3.0")
    for told in (
        "It uses another engine: docker --host tcp://theirs.example:2376.",
        f"It builds the image from {folder} and sends that whole folder to the engine.",
        "Its container has network access.",
        "Its container has the capability SYS_ADMIN.",
    ):
        assert f"harness: {told}\n" in done.stderr
        assert f"# {told}\n" in done.stdout


def test_a_script_for_processes_says_that_it_runs_on_the_machine_itself(tmp_path: Path) -> None:
    assert (
        "It runs on the machine that starts it"
        in harness("repro", stored_run.write(tmp_path, lane=PROCESS), "6.3.0").stderr
    )


@pytest.mark.parametrize("name", ["--privileged", "--volume=/:/host", "a b", "$(touch x)", "-"])
def test_an_image_s_name_is_no_option_of_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    run = opened(tmp_path, source=Pull(reference=name))
    with pytest.raises(UsageError, match="is not the name of an image"):
        recipe_of(run)


def test_a_build_s_folder_is_no_option_of_docker() -> None:
    source = Build(context=Path("--output=type=local,dest=x"), args=())
    assert reproduction.build_command(source)[-1] == "./--output=type=local,dest=x"


# ---------------------------------------------------------------- what is odd


def test_a_plan_that_does_not_keep_its_script_is_a_message(tmp_path: Path) -> None:
    """It was a KeyError."""
    path = stored_run.write(tmp_path)
    edited(path, lambda plan: plan["files"]["grow"].pop("grow.py"))
    done = harness("repro", path, "6.3.0")
    assert isinstance(done.exception, UsageError)
    assert "grow.py is gone or was changed" in str(done.exception)


@pytest.mark.parametrize(
    "script",
    [
        b"# coding: no-such-codec\n",
        b"# coding: zlib_codec\n",
        b"# coding: undefined\n",
        b"x = " + b"-" * 200_000 + b"1\n",
    ],
    ids=["unknown", "not-a-text", "odd", "deep"],
)
def test_a_script_that_no_python_reads_is_given_as_it_is(tmp_path: Path, script: bytes) -> None:
    path = stored_run.write(tmp_path)
    replaced(path, script)
    done = harness("repro", path, "6.3.0")
    assert done.exit_code == 0, done.exception
    assert script.decode(errors="replace").splitlines()[0] in done.stdout


def test_a_value_of_the_environment_ends_no_block_of_code(tmp_path: Path) -> None:
    """The text after it would be Markdown of the sender's, in a report that the reader signs."""
    value = "\n```\n# Buy this\n````\n"
    path = stored_run.write(tmp_path, environment=(("MODE", value),))
    lines = harness("issue", path, 1).stdout.splitlines()
    fence = ""
    outside = []
    for line in lines:
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line[: len(line) - len(line.lstrip("`"))]
        else:
            outside.append(line)
    assert not [line for line in outside if "Buy this" in line]


def test_half_a_character_ends_no_report(tmp_path: Path) -> None:
    """JSON can contain a lone surrogate, but no file or terminal can: a traceback was printed instead of the script."""
    path = stored_run.write(tmp_path, environment=(("MODE", "a\ud800z \N{GRINNING FACE}"),))
    for arguments in (
        ("repro", path, "1"),
        ("repro", path, "1", "--script", tmp_path / "again.sh"),
        ("issue", path, "1"),
    ):
        result = harness(*arguments)
        assert result.exit_code == 0, result.output
    assert "a?z \N{GRINNING FACE}" in (tmp_path / "again.sh").read_text()


def test_what_a_report_warns_of_does_not_act_on_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = tmp_path / "\x1b]0;owned\x07\x1b[2Jctx"
    path = stored_run.write(tmp_path, source=Build(context=context, args=()))
    for arguments in (["issue", path, 1], ["repro", path, "6.3.0"]):
        said = harness(*arguments).stderr
        assert "the image" in said
        assert "ctx" in said
        assert "\x1b" not in said
