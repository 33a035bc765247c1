"""Completion scripts, made from the parsers of the verbs."""
