"""Keeps and shows what all runs in one folder measured, and watches registries for what to run next.

The index, `index.sqlite`, is derived from the runs' directories alone (`plan.json`, `result.json`, `probes.json`), and
they remain the source of truth. `selection` answers the commands from it, and `publish` writes it as a site.
`docs/history.md` documents its tables.
"""
