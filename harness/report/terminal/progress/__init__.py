"""Shows the progress of a run on a terminal or in a log."""
