"""Makes a scenario from the command line that a user typed: a program, a command or a server."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

from harness.errors import UsageError, did_you_mean
from harness.matrix.draft.copied import IN_A_SHELL, check_size, imported_by, module_in, named_in, without_these
from harness.matrix.draft.words import checked_pattern, name_of, safe
from harness.matrix.programs import FLAGS, PYTHON, started_files
from harness.model import LAUNCHER_MODULES, LAUNCHERS, starts_python


@dataclass(frozen=True, kw_only=True)
class DraftJob:
    """A command line as a scenario. `entry`: its keys in a matrix file; `carried`: the files that are copied into each
    launch; `source`: the file of a program that is measured from inside."""

    name: str
    entry: Mapping[str, Any]
    carried: tuple[str, ...]
    source: Path | None = None

    @property
    def module(self) -> str | None:
        """Return the name of the program's own module in `steps_are`; None for a command."""
        return self.entry.get("module", self.source.stem) if self.source else None

    @property
    def is_command(self) -> bool:
        """Return whether a launch is one run of a command, or of a load generator, and has no steps of a program."""
        return "command" in self.entry or isinstance(self.entry.get("client"), list)


def job_of(
    words: Sequence[str],
    *,
    folder: Path,
    files: Sequence[str] = (),
    step_pattern: str | None = None,
    exit_code: bool = False,
    has_image: bool = True,
    without: Sequence[str] = (),
    installed: Collection[str] = (),
    served: Mapping[str, Any] | None = None,
) -> DraftJob:
    """Return the scenario of a command line: a program that is measured from inside, if Python runs a file or module of
    `folder`, else a command. `folder` is written as the matrix file names it. `files`: further files to copy in.
    `step_pattern`: measure a command, whose matching lines of output are steps. `exit_code`: measure a command, of
    which only the exit code counts. `has_image`: an image may contain a program that `folder` lacks. `without`: names
    that are not copied in. `installed`: packages that each version has. `served`: the keys of a server, if
    the command starts one. Raises UsageError.
    """
    checked_pattern(step_pattern or "")
    launcher, words = parted_launcher(words)
    rest = list(dropwhile(FLAGS.__contains__, words[1:])) if PYTHON.fullmatch(words[0]) else []
    script = rest[0] if rest and rest[0].endswith(".py") else ""
    _check_started(words, folder, has_image=has_image)
    module = rest[1] if len(rest) > 1 and rest[0] == "-m" else ""
    top = module_in(module, folder) if module else None
    from_inside = not step_pattern and not exit_code and served is None
    entry: dict[str, Any] = {"command": [*launcher, *(words[1:] if launcher and starts_python(launcher) else words)]}
    args, home, source = list(words), Path(), None
    if from_inside and top:
        args, place = rest[2:], folder / module.replace(".", "/")
        named = (place, place.with_name(f"{place.name}.py"), place / "__main__.py")
        source = next((path for path in named if path.is_file()), place)
        entry = {"module": module, **({"args": args} if args else {})}
    elif from_inside and script and not Path(script).is_absolute() and (folder / script).is_file():
        args, home, source = rest[1:], Path(script).parent, folder / script
        entry = {"program": str(source), **({"args": args} if args else {})}
    # The words, and the words inside shell lines such as `sh -c 'python train.py; ./after.sh'`.
    pieces = [*args, *(piece for word in args for piece in IN_A_SHELL.split(word) if piece != word)]
    code = (
        [script, *(str(home / name) for name in imported_by(folder / script, folder / home, installed))]
        if "program" in entry
        else []
    )
    own = {key: served[key] for key in ("client", "requests") if served and isinstance(served.get(key), str)}
    if served is not None:
        entry = {"serve": entry["command"], **served, **{key: str(folder / name) for key, name in own.items()}}
        pieces += served["client"] if isinstance(served.get("client"), list) else []
    if "client" in own:
        home, client = Path(own["client"]).parent, folder / own["client"]
        code += [str(home / name) for name in imported_by(client, client.parent, ())]
    if "command" in entry or served is not None:
        scripts = [folder / word for word in pieces if word.endswith(".py") and (folder / word).is_file()]
        code += [name for path in scripts for name in imported_by(path, folder, installed)]
    if top:
        code += [top, *imported_by(folder / top, folder, installed)]
    if launcher and "command" not in entry:
        entry["launcher"] = shlex.join(launcher)
    found = dict.fromkeys([*named_in(pieces, folder), *files, *code])
    carried = without_these(found, without, needed=script or top or "")
    check_size(carried, folder)
    if step_pattern:
        entry["step_pattern"] = step_pattern
    if exit_code:
        entry["judge"] = "exit"
    if beside := [str(folder / name) for name in carried if "program" not in entry or name != script]:
        entry["files"] = beside
    if any(len(Path(name).parts) > 1 for name in carried):
        entry["folder"] = str(folder)
    name = safe(Path(module).stem) if top else name_of(words)
    return DraftJob(name=name, entry=entry, carried=(*carried, *own.values()), source=source)


def _check_started(words: Sequence[str], folder: Path, *, has_image: bool) -> None:
    """Raise UsageError if a command starts a file that is nowhere. An image may contain it at an absolute path; a
    relative one means a copy of a file of `folder`, because a launch starts among these copies."""
    for name in started_files(words):
        if (has_image and Path(name).is_absolute()) or (folder / name).is_file():
            continue
        if Path(name).is_absolute():
            raise UsageError(f"{name}: no such file; name a program that exists")
        home = (folder / name).parent if (folder / name).parent.is_dir() else folder
        near = did_you_mean(Path(name).name, known=(path.name for path in home.iterdir() if path.is_file()))
        in_image = ", or the absolute path of one in the images" if has_image else ""
        raise UsageError(f"{name}: is not in {folder.resolve()}{near} name a program of this folder{in_image}")


def parted_launcher(words: Sequence[str]) -> tuple[tuple[str, ...], Sequence[str]]:
    """Return the words of a known launcher, and the command that it starts, with `python` before a program. The command
    begins with Python, or with the first Python file or `-m` that follows the launcher's options."""
    name, is_module = words[0].rpartition("/")[2], PYTHON.fullmatch(words[0]) and "-m" in words[1:2]
    if name not in LAUNCHERS and not (is_module and words[2:3] and words[2] in LAUNCHER_MODULES):
        return (), words
    begins = 3 if is_module else 1
    takes_python = starts_python(words)
    for place in range(begins, len(words)):
        if not takes_python and PYTHON.fullmatch(words[place]):
            return tuple(words[:place]), words[place:]
        if takes_python and (words[place].endswith(".py") or words[place] == "-m"):
            return tuple(words[:place]), ["python", *words[place:]]
    return (), words
