"""What a run asks of the judge, and what it keeps of the answers."""
