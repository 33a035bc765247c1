"""Fuzzing of everything that reads what a peer sent: `make fuzz`."""
