"""Responses: their bytes, and those that the server sends without a call."""
