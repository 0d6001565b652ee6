"""The scenario process, which runs the steps of the user's script or program and samples itself."""
