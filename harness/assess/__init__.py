"""Assesses a whole run: the noise, verdicts and changes of each row, and the findings of all rows."""
