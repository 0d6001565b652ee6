"""One trace: what its memory, its counts and its step time do."""
