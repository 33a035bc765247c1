"""The verbs of the `pegboard` command, one module each."""
