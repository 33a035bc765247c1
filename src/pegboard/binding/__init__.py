"""From checked JSON arguments to the Python values that a function takes."""
