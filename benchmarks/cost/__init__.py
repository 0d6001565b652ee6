"""What the harness costs, how fast it is, and how large what it writes is. Each case is a function of these modules.

Its first line says what it measures, its arguments are the options of the command line, and it returns whether all its
bounds were kept.
"""
