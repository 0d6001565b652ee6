"""The process engine: trials in virtual environments of this machine."""
