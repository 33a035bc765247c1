"""Tools: what they are called, what they take, how arguments are read and results are told."""
