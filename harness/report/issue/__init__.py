"""Writes the bug report on a finding, and the scripts that reproduce it without the harness."""
