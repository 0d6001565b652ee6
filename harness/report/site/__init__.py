"""Makes the static site of `harness publish`: pages from the index that need no scripts and no network."""
