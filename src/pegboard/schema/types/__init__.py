"""Reads Python types, annotations and docstrings into shapes."""
