"""The `pegboard` command: what its verbs share."""
