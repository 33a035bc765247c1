"""Limits on rates, concurrency, tokens and time."""
