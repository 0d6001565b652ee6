"""The prose of all reports: every sentence that a user reads is made here."""
