"""One trial: the conversation with the agent, and its result."""
