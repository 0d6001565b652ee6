"""The `series:` of a matrix file: which versions there are, and the image of each."""
