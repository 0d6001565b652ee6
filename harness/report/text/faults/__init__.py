"""Writes the sentences about a fault: what causes it, what it does, since when, and with which params."""
