"""Reads files of environment variables, as `docker run --env-file` does. Their values reach the program, and nothing
that is written.

A line is NAME=value, or NAME alone, which takes the value from the environment of the harness. Empty lines and lines
that begin with # are ignored. No message contains a value.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from harness.safe_files import read_regular

MOST_BYTES = 1 << 20
KEY_BYTES = 32


def read_env_file(path: Path, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables of a file. Raises OSError, and ValueError with the line and the remedy."""
    found: dict[str, str] = {}
    for number, line in enumerate(
        read_regular(Path(os.path.realpath(path)), most_bytes=MOST_BYTES).split(b"\n"), start=1
    ):
        try:
            text = line.decode().strip("\r").lstrip()
        except UnicodeDecodeError:
            raise ValueError(f"line {number} is not UTF-8; write NAME=value") from None
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not name or name != name.strip() or "\0" in text or any(map(str.isspace, name)):
            raise ValueError(f"line {number} is not NAME=value, nor the NAME of a variable that is set here")
        if not equals and name not in environ:
            raise ValueError(f"line {number}: {name} is not set here; set it, or write {name}=value")
        found[name] = value if equals else environ[name]
    return tuple(found.items())


def keyed_digest(variables: Iterable[tuple[str, str]], folder: Path) -> str:
    """Return a digest of variables that reveals none of them: its key is random and stays in `folder`, in a file that
    only its owner can read. Raises OSError."""
    file = folder / "env-file-key"
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(secrets.token_bytes(KEY_BYTES))
    return hmac.new(file.read_bytes(), json.dumps(sorted(variables)).encode(), hashlib.sha256).hexdigest()
