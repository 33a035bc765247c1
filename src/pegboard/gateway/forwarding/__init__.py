"""Forwarding one request to a server and its result back, across protocol revisions."""
