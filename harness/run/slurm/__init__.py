"""The Slurm engine: trials as steps of an allocation that is held for the sweep."""
