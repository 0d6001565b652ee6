"""Keeps `index.sqlite`, a database of everything that the runs of a folder measured.

It is made from the runs' directories alone (`plan.json`, `result.json`, `probes.json`), which stay the truth: whoever
opens it brings it up to date first, and makes it anew if it is damaged. `docs/history.md` documents its tables.
"""

from harness.index.database import FILE, with_index
from harness.index.queries import OpenIndex

__all__ = ["FILE", "OpenIndex", "with_index"]
