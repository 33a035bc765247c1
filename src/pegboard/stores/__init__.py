"""Stores for sessions, streams and tasks: one contract, one module or folder for each backend."""
