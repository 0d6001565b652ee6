"""Answers questions about many runs, or about one as a whole: `runs`, `history`, `publish`, `compare`, `frontier`."""
