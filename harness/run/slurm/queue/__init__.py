"""The queue of Slurm: what its commands say, and an allocation that is waited for and held."""
