"""Implements the commands. Only this package wires the others together."""
