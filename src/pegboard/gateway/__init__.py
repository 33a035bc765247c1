"""Many MCP servers behind one endpoint."""
