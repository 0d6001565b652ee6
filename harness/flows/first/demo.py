"""Writes the files of `harness demo`, a sweep of packages with a known history. Every installation contains them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from harness.errors import UsageError
from harness.flows.first.new_files import write_new

MATRIX = "quickstart.yaml"
FILES = (MATRIX, "scenarios/multidict_headers.py", "scenarios/regex_cache.py")


def write(folder: Path) -> Path:
    """Write the demo into a folder and return the path of its matrix. Files of an earlier call stay. Raises UsageError
    if a file of the same name has other content."""
    source = _source()
    texts = {folder / name: (source / name).read_text(encoding="utf-8") for name in FILES}
    write_new({path: text for path, text in texts.items() if not _has(path, text)}, otherwise="name another --folder")
    return folder / MATRIX


def _source() -> Path:
    """Return the folder with the demo's files: the package's data, or a checkout's examples. Raises UsageError."""
    installed = Path(str(files("harness"))) / "data" / "demo"
    source = installed if installed.is_dir() else Path(str(files("harness"))).parent / "examples"
    if missing := [name for name in FILES if not (source / name).is_file()]:
        raise UsageError(f"{source / missing[0]}: this installation lacks the demo's files; install the harness again")
    return source


def _has(path: Path, text: str) -> bool:
    try:
        return path.is_file() and path.stat().st_size == len(text.encode()) and path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False
