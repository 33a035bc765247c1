"""Verbs for the files of clients."""
