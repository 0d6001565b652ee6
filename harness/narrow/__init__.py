"""Finds the component at fault, with hybrids of the last good version and the first bad one."""
