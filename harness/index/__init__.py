"""Keeps `index.sqlite`, a database of everything that the runs in one folder measured.

The index is derived from the runs' directories alone (`plan.json`, `result.json`, `probes.json`), which remain the
source of truth. Opening the index updates it first, and rebuilds it if it is damaged. `docs/history.md` documents its
tables.
"""

from harness.index.database import FILE, with_index
from harness.index.queries import OpenIndex, views_of
