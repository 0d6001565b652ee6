"""Makes the static site of `harness publish`: pages of the index that need no script and no network."""
