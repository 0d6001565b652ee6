"""Writes the sentences about a fault: whose it is, what it does, since when, and with which params."""
