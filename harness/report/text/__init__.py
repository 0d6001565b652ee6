"""The prose of all reports: this room makes every sentence that a user reads."""
