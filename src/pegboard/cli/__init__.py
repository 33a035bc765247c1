"""The `pegboard` command: its verbs, and what they read and write on this machine."""
