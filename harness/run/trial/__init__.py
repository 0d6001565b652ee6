"""Runs one trial: packs its files, holds the conversation with the agent, and returns the result."""
