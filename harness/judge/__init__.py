"""The statistics: pure functions over traces and trials, which neither print nor depend on Docker."""
