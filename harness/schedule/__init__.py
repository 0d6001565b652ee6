"""Which cell is launched next."""
