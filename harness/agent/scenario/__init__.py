"""The scenario's process: it runs the user's script or program, steps it and samples it."""
