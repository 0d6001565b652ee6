"""Implements the engine `process`, which runs trials in virtual environments on this machine."""
