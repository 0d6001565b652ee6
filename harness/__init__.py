"""Find which version of a GPU container broke things, and on which card, with the evidence."""

__version__ = "0.1.0"
