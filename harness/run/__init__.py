"""What touches engines: hosts, images, and the one conversation that every trial is.

`ENGINES` maps a kind of engine to the function that opens it. Both kinds obey one contract
(`tests/contract`); `trial.run_trial` holds the conversation with the agent over either.
"""
