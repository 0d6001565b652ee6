"""Records what single commands show: `compare`, `doctor`, `history`, `issue`, `judge --history`, `publish`, `watch`."""
