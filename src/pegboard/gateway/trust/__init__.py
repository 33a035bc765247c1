"""What of a server is believed: what was accepted, what changed since, and what no tool should say."""
