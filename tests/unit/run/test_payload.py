"""What is copied into a trial: where the files are, and the hash by which a later run recognises them."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.agent import caches
from harness.errors import InfrastructureError, MatrixError
from harness.model import Scenario, Steps, Variant, Where
from harness.run import owners
from harness.run.docker.tar_streams import archive, of_context
from harness.run.images.build_images import context_files
from harness.run.process import environments
from harness.run.process.environments import AgentCopy
from harness.run.slurm import steps
from harness.run.trial import payload
from harness.run.trial.payload import keep_inputs, pack, payload_hash

WHERE = Where(file="m.yaml", line=1, key="k")


def variant(*files: Path, script: Path | None = None, a: int = 1) -> Variant:
    scenario = Scenario(name="x", where=WHERE, script=script, files=files, steps=Steps(first=5, budget=10))
    return Variant(scenario=scenario, params=(("a", a),))


def placed(*files: Path, script: Path | None = None) -> dict[str, str]:
    """Path in the scenario's folder -> content."""
    found = pack(variant(*files, script=script)).contents
    return {name[len("scenario/") :]: text.decode() for name, text in found.items() if name.startswith("scenario/")}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    for name in ("scenarios/s.py", "scenarios/data/inner.txt", "outside.txt", "other/s.py", "other/data"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path / "scenarios" / "s.py"


def test_files_lie_as_they_do_beside_the_script_or_under_their_own_names(script: Path) -> None:
    home = script.parent
    assert placed(home / "data", script=script) == {
        "s.py": "scenarios/s.py",
        "data/inner.txt": "scenarios/data/inner.txt",
    }
    assert placed(home, home / "data" / "inner.txt", script=script) == placed(home / "data", script=script)
    assert placed(home.parent / "outside.txt")["outside.txt"] == "outside.txt"


@pytest.mark.parametrize("text", ["../outside.txt", "data/../../outside.txt", "./../scenarios/../outside.txt"])
def test_no_name_leads_out_of_the_trial(script: Path, text: str) -> None:
    assert placed(script.parent / text, script=script)["outside.txt"] == "outside.txt"
    assert placed(script.parent / "data" / ".." / "data", script=script)["data/inner.txt"] == "scenarios/data/inner.txt"


@pytest.mark.parametrize(
    ("files", "place"),
    [
        (["../other/s.py"], "s.py"),
        (["data/inner.txt", "../other/data"], "data"),
        (["../other", "../other/../scenarios/data/../../other", "../more/other"], "other/data"),
    ],
)
def test_two_files_for_one_place_are_refused_and_named(script: Path, files: list[str], place: str) -> None:
    shutil.copytree(script.parents[1] / "other", script.parents[1] / "more" / "other")
    with pytest.raises(MatrixError, match=rf"^m\.yaml:1: k: files: \S+ and \S+ would both be copied to {place};"):
        placed(*[script.parent / text for text in files], script=script)


def test_what_cannot_be_read_is_told(script: Path) -> None:
    with pytest.raises(MatrixError, match=r"^m\.yaml:1: k: .*none: cannot be read: No such file"):
        placed(script.parent / "none", script=script)
    os.mkfifo(script.parent / "pipe")
    with pytest.raises(MatrixError, match=r"pipe: neither a file nor a folder"):
        placed(script.parent / "pipe", script=script)


def test_hash_follows_content_and_params_but_no_chance(script: Path) -> None:
    first = payload_hash(variant(script=script))
    assert payload_hash(variant(script=script)) == first
    assert payload_hash(variant(script=script, a=2)) != first
    script.write_text("two")
    assert payload_hash(variant(script=script)) != first
    assert pack(variant(script=script)).job["marker"] != pack(variant(script=script)).job["marker"]
    assert {"start.py", "harness_agent/__init__.py", "scenario/s.py"} <= set(pack(variant(script=script)).contents)


def test_hash_follows_the_agents_source(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial of an older agent is not mistaken for a current one, even if its version was not raised."""
    agent = shutil.copytree(payload.AGENT, tmp_path / "agent")
    first = payload_hash(variant(script=script))
    monkeypatch.setattr(payload, "AGENT", agent)
    assert payload_hash(variant(script=script)) == first
    (agent / "probes" / "rss.py").write_text("# changed\n")
    assert payload_hash(variant(script=script)) != first


def test_names_that_are_no_text_are_hashed_and_packed(script: Path) -> None:
    (script.parent / os.fsdecode(b"data/\xff")).write_text("x")
    assert payload_hash(variant(script.parent / "data", script=script))
    assert placed(script.parent / "data", script=script)[os.fsdecode(b"data/\xff")] == "x"


def test_a_program_of_files_may_be_executed_and_the_hash_follows_that(script: Path) -> None:
    program = script.parent / "program"
    program.write_text("#!/bin/sh\n")
    plain = payload_hash(variant(program))
    assert pack(variant(program)).executable == frozenset()
    program.chmod(0o755)
    assert pack(variant(program)).executable == {"scenario/program"}
    assert payload_hash(variant(program)) != plain
    program.chmod(0o644)
    assert payload_hash(variant(program)) == plain


def test_a_bytecode_folder_of_the_users_own_is_no_place_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """With PYTHONPYCACHEPREFIX set, every sweep failed on a path outside the trial's folder."""
    usual = set(payload.compiled_agent.__wrapped__())
    monkeypatch.setattr(sys, "pycache_prefix", "/elsewhere")
    assert set(payload.compiled_agent.__wrapped__()) == usual


def test_compiling_the_agent_needs_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed meanwhile left that folder, which `harness clean` did not remove."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert payload.compiled_agent.__wrapped__()


def test_the_agent_comes_compiled_and_is_compiled_anew_where_it_changed(tmp_path: Path) -> None:
    """Otherwise each launch would wait for its compilation; and compiled code must never stand for another source."""
    for name, content in pack(variant()).contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    code = "import harness_agent.wire as wire; print(wire.__cached__, hasattr(wire, 'CHANGED'))"

    def told() -> list[str]:
        command = [sys.executable, "-B", "-v", "-c", code]
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
        return [line for line in done.stderr.splitlines() if "wire" in line and "matches" in line] + [done.stdout]

    *matches, out = told()
    assert matches
    assert out.endswith("False\n")
    source = tmp_path / "harness_agent" / "wire.py"
    source.write_text(source.read_text() + "\nCHANGED = True\n")
    *matches, out = told()
    assert not matches
    assert out.endswith("True\n")


# ---------------------------------------------------------------- one copy of the agent for all trials


AGENT = {"package/__init__.py": b"", "package/deep/part.py": b"X = 1\n"}


def linked(copy: AgentCopy, root: Path) -> Path:
    root.mkdir()
    copy.link_into(root, AGENT)
    return (root / "package").resolve()


def test_trials_share_one_copy_that_goes_with_the_engine(tmp_path: Path) -> None:
    copy = AgentCopy()
    first, second = linked(copy, tmp_path / "a"), linked(copy, tmp_path / "b")

    assert first == second
    assert (tmp_path / "a/package/deep/part.py").read_bytes() == b"X = 1\n"
    copy.remove()
    copy.remove()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_a_copy_that_could_not_be_written_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a full disk, a part of the agent would fail in every launch."""
    copy = AgentCopy()
    with monkeypatch.context() as patch:
        patch.setattr(environments, "write_files", full_disk)
        with pytest.raises(OSError, match="No space left"):
            linked(copy, tmp_path / "a")

    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert (linked(copy, tmp_path / "b") / "deep/part.py").read_bytes() == b"X = 1\n"


def full_disk(files: Mapping[str, bytes], folder: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": shutil.rmtree,
    "changed": lambda copy: (copy / "package/__init__.py").write_bytes(b"raise SystemExit\n"),
    "closed": lambda copy: (copy / "package").chmod(0),
    "a part lost": lambda copy: (copy / "package/deep/part.py").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_copy_is_written_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    """A cleaner of temporary files, or a program that empties its home, would end all other launches of a sweep."""
    copy = AgentCopy()
    damage(linked(copy, tmp_path / "a").parent)

    assert (linked(copy, tmp_path / "b") / "deep/part.py").read_bytes() == b"X = 1\n"
    assert (tmp_path / "b/package/__init__.py").read_bytes() == b""
    assert len(list(tmp_path.glob(f"{owners.AGENT_PREFIX}*"))) == 1, "copies pile up"
    copy.remove()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_a_copy_that_cannot_be_removed_costs_no_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is removed at the end of a sweep, before its report is written: an error there lost the report."""
    monkeypatch.setattr(owners, "REMOVAL_S", 0.0)
    monkeypatch.setattr(caches, "remove", read_only)
    copy = AgentCopy()
    kept = linked(copy, tmp_path / "a").parent

    copy.remove()
    assert kept.name.startswith(owners.AGENT_PREFIX)
    assert kept.is_dir()


def read_only(folder: str) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), "relative")


# ---------------------------------------------------------------- large files


def sparse(path: Path, size: int) -> Path:
    path.touch()
    os.truncate(path, size)
    return path


def test_a_large_file_is_never_held_in_memory(script: Path, tmp_path: Path) -> None:
    """Files of 600 MiB took 1.25 GiB, and each launch in slices held its own."""
    large = sparse(script.parent / "model.bin", 64 << 20)
    tracemalloc.start()
    packed, digest = pack(variant(large, script=script)), payload_hash(variant(large, script=script))
    chunks = archive({f"x/{name}": content for name, content in packed.contents.items()})
    sizes = [len(chunk) for chunk in chunks]
    sent = sum(map(len, steps.order(packed, root=None, environment={}, only=True)))
    keep_inputs(variant(large, script=script).scenario, tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert sum(sizes) > 64 << 20
    assert max(sizes) < 4 << 20
    assert sent > 64 << 20
    with large.open("r+b") as file:
        file.write(b"other")
    assert payload_hash(variant(large, script=script)) != digest


def test_files_beyond_the_limit_are_refused(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "MOST_BYTES", 8 << 20)
    with pytest.raises(MatrixError, match="9 MiB would be copied into each launch, and at most 8 MiB may be"):
        pack(variant(sparse(script.parent / "model.bin", 9 << 20), script=script))


@pytest.mark.parametrize("size", [(3 << 20) - 1, (3 << 20) + 1])
def test_a_file_that_changes_while_it_is_copied_is_told(script: Path, size: int) -> None:
    packed = pack(variant(sparse(script.parent / "model.bin", 3 << 20), script=script))
    sparse(script.parent / "model.bin", size)
    with pytest.raises(InfrastructureError, match=r"model\.bin: changed while it was copied"):
        list(archive(packed.contents))


def test_an_archive_in_pieces_is_read_as_a_whole(script: Path) -> None:
    files = {"a/b/c": b"text", f"long/{'n' * 150}": b"x" * 600, "e": b""}
    whole = b"".join(archive(files, executable=["e"], writable="a"))
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        found = {info.name: (oct(info.mode), info.isdir()) for info in tar}
        assert {name: tar.extractfile(name).read() for name in files} == files  # type: ignore[union-attr]
    assert found["a"] == found["a/b"] == ("0o777", True)
    assert (found["a/b/c"], found["e"]) == (("0o666", False), ("0o755", False))


def test_a_build_needs_no_room_for_temporary_files_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full or missing TMPDIR was "the connection to the engine was lost", and the host was given up."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_text("x" * 5000)
    (tmp_path / "same").hardlink_to(tmp_path / "inner" / "file")
    (tmp_path / "link").symlink_to("inner/file")
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    names = context_files(tmp_path)
    whole = b"".join(of_context(tmp_path, names, extra={"Dockerfile": b"FROM y\n"}))
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        assert sorted(tar.getnames()) == sorted(names)
        assert tar.extractfile("Dockerfile").read() == b"FROM y\n"  # type: ignore[union-attr]
        for name in ("inner/file", "same", "link"):
            assert tar.extractfile(name).read() == b"x" * 5000  # type: ignore[union-attr]
