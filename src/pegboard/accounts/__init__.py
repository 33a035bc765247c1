"""What each caller uses, and what it may use: one account for each principal, or for the address of an anonymous caller."""
