"""Credentials that a server wants and an authorization server gives: OAuth 2.1 as the MCP specification uses it."""
