"""Runs a piece of Python with a limit of processor time: what takes more grows faster than what it is given.

The limit is a hundred times what is needed, whatever else the machine does; it is no measurement.
"""

from __future__ import annotations

import subprocess
import sys

SECONDS = 30


def run(code: str) -> None:
    """Raises CalledProcessError if the code needs more, or fails."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))\n{code}"
    subprocess.run([sys.executable, "-c", limited], check=True)
