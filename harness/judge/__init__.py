"""The statistics: pure functions over traces and trials. Neither prints nor knows Docker."""
