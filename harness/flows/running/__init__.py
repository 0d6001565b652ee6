"""The run of a plan: its rows, and the machines that they run on."""
