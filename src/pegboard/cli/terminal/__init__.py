"""What verbs print on a terminal, and ask there."""
