"""What checking values against a schema costs, and how that is kept low."""
