"""Turns a matrix into a plan: its cells, their order, and the possible cost of running them. Pure functions."""
