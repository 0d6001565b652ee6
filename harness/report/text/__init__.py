"""Writes every sentence of the reports."""
