"""A real Slurm on one machine, for tests of `engine: slurm`.

munge, slurmctld and three slurmd run here as root, in a folder and on ports of their own. The GPUs that the nodes offer
are character devices without a driver: Slurm counts and assigns them as it does with real cards.
"""
