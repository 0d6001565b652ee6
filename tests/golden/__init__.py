"""Golden runs: launches of real sweeps, recorded in a format of their own, and the answers that they must give."""
