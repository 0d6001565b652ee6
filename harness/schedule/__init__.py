"""Schedulers: which cells are launched next."""
