"""The protocol as pure data and functions: no I/O, no clock, no randomness, no log."""
