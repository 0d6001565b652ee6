"""Looks into scenarios from inside, in launches of their own, which reach no verdict: `harness probe`."""
