"""Faults, kills and damaged input at random: tests of `make nightly`, which also run by hand for as long as one likes.

python -m tests.faults.sweeps     faults at random moments of real sweeps
python -m tests.faults.kills      kills on pools of engines and on a Slurm cluster
python -m tests.faults.fuzz       damaged files, messages and answers
"""
