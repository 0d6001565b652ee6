"""Writes a working scenario and a matrix that runs it, for `harness new-scenario`."""

from __future__ import annotations

import keyword
import sys
from pathlib import Path

from harness.errors import UsageError
from harness.flows.first.new_files import write_new

SCRIPT = '''"""Pack a list of numbers and unpack it again."""

# The values that each parameter may take: the matrix is checked against them before anything starts.
PARAMS = {"count": [100, 1000], "form": ["json", "pickle"]}


def setup(count=100, form="json"):
    """Prepare what is needed once. Import what is measured here, not at the top of the file."""
    import importlib

    library = importlib.import_module(form)
    numbers = list(range(count))

    def step():
        """Run one step. It is called repeatedly, and timed. It may return a number or a dict of numbers."""
        for _ in range(50):
            packed = library.dumps(numbers)
            library.loads(packed)
        return {"packed_bytes": len(packed)}

    return step
'''

MATRIX = """# harness sweep {name}.yaml
version: 1
series:
  numpy:                                # replace this with the package to test
    install: ["numpy=={{version}}"]
    versions: ["2.2.5", "2.2.6"]        # oldest first
scenarios:
  {name}:
    script: {name}.py
    params: {{count: 1000, form: [json, pickle]}}
    steps: {{first: 500, budget: 2000}}
    limits: {{leak: 0.5KiB, step_time: 10%}}
    timeout: 2m
trials: {{least: 2, most: 4}}
"""


def write(name: str, folder: Path) -> list[Path]:
    """Write `name`.py and `name`.yaml into `folder`. Raises UsageError; overwrites nothing."""
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        raise UsageError(f"{name!r} cannot name a scenario; use letters, digits and _, and do not begin with a digit")
    if name in sys.stdlib_module_names or name == "numpy":  # numpy: what the matrix installs
        raise UsageError(f"{name}: import {name} would find this file, not that module; choose another name")
    files = {folder / f"{name}.py": SCRIPT, folder / f"{name}.yaml": MATRIX.format(name=name)}
    return write_new(files, otherwise="choose another name or --folder")
