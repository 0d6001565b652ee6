"""One trial: the conversation with the agent, and what comes of it."""
