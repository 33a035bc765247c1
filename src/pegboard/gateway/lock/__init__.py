"""The lock file: pinned definitions, their differences, and the scanner."""
