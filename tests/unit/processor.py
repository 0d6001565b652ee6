"""Runs Python on long texts with a limit of processor time: code that exceeds it grows faster than the text.

The limit is ten times what is needed, whatever else the machine does; it is not a measurement.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

SECONDS = 6
LENGTH = 200_000

CODE = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
{imports}
for part in {parts!r}:
    print("reading many of", repr(part), flush=True)
    text = part * ({length} // len(part))
    {code}
"""


def on_long_texts(parts: Sequence[str], *, imports: str, code: str) -> None:
    """Run `code` with each part, repeated up to LENGTH, as `text`. Raises AssertionError on failure."""
    filled = CODE.format(seconds=SECONDS, length=LENGTH, imports=imports, parts=list(parts), code=code)
    done = subprocess.run([sys.executable, "-c", filled], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
