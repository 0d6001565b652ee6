"""Implements the Docker engine, which runs trials in containers."""
