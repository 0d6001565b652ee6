"""The node that is held: what it is, the steps that run on it, and what is left there."""
