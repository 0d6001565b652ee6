"""The results of single commands: `compare`, `doctor`, `history`, `issue`, `judge --history`, `publish`, `watch`."""
