"""Reads and writes the directory of a run: plan, trials, log of decisions, result and inputs."""

from harness.atomic_files import write_atomically
from harness.store.journal import RunDirectory, began_at, in_use
from harness.store.trial_json import read_trial, trial_to_json
