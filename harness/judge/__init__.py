"""Judges traces, trials and series by pure statistics, which neither print nor depend on Docker."""
