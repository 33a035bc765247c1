"""Many servers as one board."""
