"""Configuration files: server entries, client formats, variables, and a report of every mistake."""
