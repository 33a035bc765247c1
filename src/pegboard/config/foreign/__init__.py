"""Configuration files and server entries of other programs."""
