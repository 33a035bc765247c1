"""Verbs that make and check what is served."""
