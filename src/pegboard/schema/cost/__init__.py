"""Bounds on the work that validating a value may take."""
