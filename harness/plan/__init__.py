"""Turns a matrix into a plan: which cells there are, in which order, and what running them can cost. Pure."""
