"""Bundles the chart library (Vega, Vega-Lite and vega-embed), which the page embeds so that it needs no network.

vl-convert contains the three packages and takes a few seconds to bundle them; the user's cache keeps the bundle.
"""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from harness.model.watching import Say
from harness.safe_files import opened

_PACK = "import sys, vl_convert; sys.stdout.write(vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;'))"
_TIMEOUT_S = 120
MOST_BYTES = 32 << 20


def chart_library(environ: Mapping[str, str], say: Say) -> str:
    """Return the script, which sets `window.vegaEmbed`. If it cannot be bundled, report the reason through `say` and
    return "", so that a report without charts can be written.
    """
    path = _cache(environ) / f"charts-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):  # missing or unreadable: bundle it again
        if kept := _own(path):  # a power failure may leave an empty file
            return kept
    try:
        script = _packed()
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error).encode()
        last = "".join(told.decode(errors="replace").strip().splitlines()[-1:])
        say(f"report.html has no charts: vl-convert cannot bundle the chart library: {last}; reinstall vl-convert")
        return ""
    with suppress(OSError):  # without a writable cache, the next report takes a few seconds longer
        _keep(path, script)
    return script


def _own(path: Path) -> str:
    """Return the text of a file that only this user or root can have written; "" for any other file. Several users may
    share a cache, and browsers run the script in every report.
    """
    number = opened(path, os.O_RDONLY)
    with os.fdopen(number, "rb") as file:
        found = os.fstat(number)
        is_ours = found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not (is_ours and found.st_size <= MOST_BYTES):
            return ""
        return file.read(MOST_BYTES).decode()


def _cache(environ: Mapping[str, str]) -> Path:
    """Return the cache folder: HARNESS_CACHE, or `harness` in the user's cache, as for process environments."""
    if own := environ.get("HARNESS_CACHE"):
        return Path(own)
    return Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/") / ".cache") / "harness"


def _packed() -> str:
    """Bundle the script in a separate process, because the JavaScript engine needs more memory than a report may."""
    done = subprocess.run([sys.executable, "-c", _PACK], capture_output=True, timeout=_TIMEOUT_S, check=True)
    return done.stdout.decode()


def _keep(path: Path, script: str) -> None:
    """Write the script atomically, because other processes may write it at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        temporary.write_text(script, encoding="utf-8")
        temporary.chmod(0o644)  # regardless of the umask, because `_own` rejects a file that others may write
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
