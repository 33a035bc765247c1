"""Verbs that serve: they run until they are stopped."""
