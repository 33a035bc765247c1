"""The MCP client: one API over every transport and protocol revision."""
