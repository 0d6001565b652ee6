"""The chart library that the page embeds, so that it needs no network: Vega, Vega-Lite and vega-embed in one script.

vl-convert contains the three and bundles them in some seconds; the user's cache keeps the bundle.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from harness.errors import InfrastructureError

_PACK = "import sys, vl_convert; sys.stdout.write(vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;'))"
_TIMEOUT_S = 120


def library_or_none(environ: Mapping[str, str], say: Callable[[str], None]) -> str:
    """Return the script; or "", after `say` with the reason, so that a report without charts can be written."""
    try:
        return chart_library(environ)
    except InfrastructureError as error:
        say(f"report.html has no charts: {error}")
        return ""


def chart_library(environ: Mapping[str, str]) -> str:
    """Return the script, which sets `window.vegaEmbed`. Raises InfrastructureError if it cannot be bundled."""
    path = _cache(environ) / f"charts-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):  # not there yet, or not readable: bundle it again
        if kept := path.read_text(encoding="utf-8"):  # a power failure may leave an empty file
            return kept
    script = _packed()
    with suppress(OSError):  # without a writable cache, the next report takes some seconds longer
        _keep(path, script)
    return script


def _cache(environ: Mapping[str, str]) -> Path:
    """Return the cache folder: HARNESS_CACHE, or `harness` in the user's cache, as for process environments."""
    if own := environ.get("HARNESS_CACHE"):
        return Path(own)
    return Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/") / ".cache") / "harness"


def _packed() -> str:
    """Bundle the script in a separate process, because the JavaScript engine needs more memory than a report may."""
    try:
        done = subprocess.run([sys.executable, "-c", _PACK], capture_output=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error).encode()
        last = told.decode(errors="replace").strip().splitlines()[-1:]
        raise InfrastructureError(
            f"vl-convert cannot bundle the chart library: {''.join(last)}; reinstall vl-convert"
        ) from error
    return done.stdout.decode()


def _keep(path: Path, script: str) -> None:
    """Write the script atomically, because other processes may write it at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        temporary.write_text(script, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
