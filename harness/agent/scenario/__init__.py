"""Runs in the scenario process, which steps the user's script or program and samples itself."""
