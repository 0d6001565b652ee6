"""History of one series: at which version something changed."""
