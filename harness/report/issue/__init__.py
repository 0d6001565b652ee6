"""Writes the bug report on a finding, and scripts that reproduce a cell without the harness."""
