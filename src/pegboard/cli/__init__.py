"""The `pegboard` command, one file per verb."""
