"""Which component of the bad version it is: hybrids of the last good version and the first bad one."""
