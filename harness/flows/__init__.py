"""What each command does: the only place that wires the parts together."""
