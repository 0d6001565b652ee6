"""Runs one trial: its files, the conversation with the agent, and its result."""
