"""Whether one series grows for ever: the rule, and the tests that it is made of."""
