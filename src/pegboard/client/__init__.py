"""Connections from our side to a server."""
