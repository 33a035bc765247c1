"""The transports: one module for each way to reach a server."""
