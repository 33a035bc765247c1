"""What hangs on the board, in order and by name."""
