"""Implements each command. This is the only part that wires the others together."""
