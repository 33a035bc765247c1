"""Login to a server: OAuth 2.1 as the MCP specification uses it."""
