"""Assesses a whole run: the noise, verdicts and changes of each block, and the findings of all blocks."""
