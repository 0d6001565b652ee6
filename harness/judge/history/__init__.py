"""One series: at which version something changed."""
