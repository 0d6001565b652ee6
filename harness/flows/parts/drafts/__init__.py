"""Matrix files that are written for a user: by `try`, `init` and `narrow`."""
