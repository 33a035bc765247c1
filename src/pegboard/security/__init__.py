"""Sealed values, and the ownership of files."""
