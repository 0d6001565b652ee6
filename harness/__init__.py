"""Find which version of a GPU container broke things, on which card, and prove it."""

__version__ = "0.1.0"
