"""Serving a board: transports, sessions, workers and mounting."""
