"""Images on an engine: found, pulled, built, overlaid and removed."""
