"""Decides which cells are launched next."""
