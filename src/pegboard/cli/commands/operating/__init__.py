"""Verbs for the operator of a server: who may call, what was called, what waits."""
