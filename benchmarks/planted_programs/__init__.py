"""Programs with a known fault, or with none: run by `benchmarks.planted`, never imported by the harness."""
