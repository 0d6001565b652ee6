"""A real Slurm on one machine, for tests of `engine: slurm`.

munge, slurmctld and three slurmd run here as root, in one folder and on separate ports. The GPUs of the nodes are
character devices without a driver: Slurm counts and assigns them as it does with real cards.
"""
