"""Verbs that use a server as its client does."""
