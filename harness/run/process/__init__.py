"""Implements the process engine, which runs trials in virtual environments of this machine."""
