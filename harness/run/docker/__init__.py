"""The Docker engine: runs trials in containers."""
