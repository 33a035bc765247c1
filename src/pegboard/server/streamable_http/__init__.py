"""The MCP endpoint over HTTP, in every protocol revision."""
