"""The process engine: runs trials in virtual environments of this machine."""
