"""What reports hold, as data that each format draws."""
